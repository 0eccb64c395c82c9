"""`gates train`: train as a configuration says; and what the trainer's other verbs share with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from reference.trainer.config.inert import Verb
    from reference.trainer.config.read import Config

EXAMPLES = """Examples:

gates train examples/tiny.toml · gates train examples/tiny.toml --set loop.steps=5 --set algorithm.name=dapo ·
gates train run.toml --dry-run · gates train run.toml --resume"""

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turn what the user can put right into one sentence and exit code 2, as for every other verb."""
    import os

    from gates.model import ConfigurationError

    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):  # read once, when the libraries are imported
        os.environ[name] = "1"
    try:
        from reference.trainer.config.errors import TrainerError

        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in {"mlx", "mlx_lm", "safetensors", "tokenizers", "huggingface_hub"}:
            raise
        raise ConfigurationError(f"the trainer needs MLX: pip install 'rl-gates[trainer]' ({error})") from None
    except (TrainerError, NotImplementedError, FileExistsError) as error:
        raise ConfigurationError(str(error)) from None


def configured(path: Path, settings: list[str] | None, *, model_here: bool = True, verb: Verb = "train") -> Config:
    """Read and validate the whole configuration, the algorithm's settings and (unless told not to) the model's name included.

    What it holds that has no effect and is not refused is told on stderr.
    """
    from gates.cli import setup
    from reference.trainer.config import inert, read

    config = read.read(path, settings or (), verb)
    made = read.algorithm(config, verb)
    for said in inert.told(config, getattr(made, "settings", None), read.reader(verb, settings or ())):
        typer.echo(f"gates: note: {said}", err=True)
    if model_here:
        setup.model(config.model.path, "model.path")
    return config


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file; see examples/.")],
    settings: Settings = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest whole checkpoint in output.folder.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration and the memory preflight, and leave.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train adapters by reinforcement learning; the folder of the run holds metrics, checkpoints and what was used."""
    with told():
        chosen = configured(config, settings, model_here=not dry_run)
        if dry_run:
            _dry_run(chosen, as_json=as_json)
            return
        from gates.cli.trainer import trouble
        from reference.trainer.checkpoint import folders
        from reference.trainer.config import read
        from reference.trainer.engine import guard
        from reference.trainer.loop import run

        longest = [chosen.data.max_prompt_tokens]

        def ready(tokens: int) -> None:
            longest[0] = tokens
            if warning := trouble.may_not_fit(chosen, tokens):
                typer.echo(f"gates: {warning}", err=True)

        try:
            summary = run.train(chosen, read.algorithm(chosen), resume=resume, ready=ready)
        except guard.NonFiniteError as error:
            typer.echo(f"gates: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            done = folders.newest(Path(chosen.output.folder) / "checkpoints")[1].get("step", 0)
            typer.echo(f"gates: {trouble.interrupted(done, config, settings or ())}", err=True)
            raise typer.Exit(130) from None
        except (RuntimeError, MemoryError) as error:
            if not trouble.no_memory(error):
                raise
            typer.echo(f"gates: {trouble.out_of_memory(chosen, longest[0], error)}", err=True)
            raise typer.Exit(1) from None
    _report(summary, as_json=as_json)


def _dry_run(config: Config, *, as_json: bool) -> None:
    import json

    from gates.cli.trainer import memory
    from reference.trainer.config import write
    from reference.trainer.loop import inputs

    inputs.read(config)
    tables = config.model_dump(mode="json")
    if as_json:
        found = memory.estimated(config, config.data.max_prompt_tokens)
        typer.echo(json.dumps({"configuration": tables, "memory": found}, indent=2))
        return
    typer.echo(write.toml(tables))
    typer.echo("\n".join(memory.lines(config, config.data.max_prompt_tokens, None)))


def _report(summary: Any, *, as_json: bool) -> None:
    import json

    for complaint in summary.complaints:
        typer.echo(f"gates: {complaint}", err=True)
    facts = {
        "folder": str(summary.folder),
        "steps": summary.steps,
        "adapter_digest": summary.adapter_digest,
        "metrics": summary.metrics,
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    typer.echo(f"{summary.steps} steps, {_gain(summary)}, adapters {summary.adapter_digest[:12]}: {summary.folder}")


def _gain(summary: Any) -> str:
    """Return how the rewards went, or the margins of pairs; a run that is resumed when it was complete has taken no step to tell of."""
    if not summary.metrics:
        return "all of them taken before"
    ends = (summary.first, summary.metrics)
    gain = "margin" if any("margin_mean" in numbers for numbers in ends) else "reward"
    values = [numbers.get(f"{gain}_mean", "unknown") for numbers in ends]
    first, last = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in values)
    return f"mean {gain} {first} in the first and {last} in the last"
