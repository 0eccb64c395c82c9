"""Shared by the trainer's verbs: read a configuration, and report a user's mistakes in one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gates_reference.trainer.config.read import Config
    from gates_reference.trainer.config.unused import Verb

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that the user can correct into one sentence with exit code 2."""
    import os

    from gates.model import ConfigurationError

    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):  # read once, when the libraries are imported
        os.environ[name] = "1"
    try:
        from gates_reference.trainer.config.errors import TrainerError

        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in {"mlx", "mlx_lm", "safetensors", "tokenizers", "huggingface_hub"}:
            raise
        raise ConfigurationError(
            f"the trainer needs MLX and rlkernels ({error}): pip install '.[trainer]' ./rust/rlkernels-python in a checkout of Gates"
        ) from None
    except (TrainerError, NotImplementedError, FileExistsError) as error:
        raise ConfigurationError(str(error)) from None


def configured(path: Path, settings: list[str] | None, *, model_here: bool = True, verb: Verb = "train") -> Config:
    """Read and validate a configuration and its algorithm's settings; with `model_here` the model must be on this machine.

    Unused settings that are not refused are noted on stderr.
    """
    from gates.cli import setup
    from gates_reference.trainer.config import algorithm, read, unused

    config = read.read(path, settings or (), verb)
    chosen = algorithm.create(config, verb)
    for note in unused.notes(config, getattr(chosen, "settings", None), read.reader(verb, settings or ())):
        typer.echo(f"gates: note: {note}", err=True)
    if model_here:
        setup.model(config.model.path, "model.path")
    return config
