"""`gates memory`: what a run will take, from the numbers of a model's config.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gates.cli.trainer.train import Json, Settings

if TYPE_CHECKING:
    from reference.trainer.config.read import Config

EXAMPLES = """Examples:

gates memory examples/qwen3-0.6b-4bit.toml · gates memory run.toml --available-gb 48 --prompt-tokens 97 ·
gates memory run.toml --set rollout.samples_per_prompt=2 --json"""


def memory(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file; see examples/.")],
    settings: Settings = None,
    available_gb: Annotated[
        float | None, typer.Option(min=0, metavar="GB", help="Memory to fit into. Default: this machine's.")
    ] = None,
    prompt_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a prompt. Default: data.max_prompt_tokens.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate a run's peak memory without loading the model, and say what to change if it does not fit."""
    import json

    from gates.cli.trainer import train

    with train.told():
        chosen = train.configured(config, settings, model_here=False)
        tokens = prompt_tokens or chosen.data.max_prompt_tokens
        if as_json:
            typer.echo(json.dumps(estimated(chosen, tokens), indent=2))
        else:
            typer.echo("\n".join(lines(chosen, tokens, available_gb)))


def estimated(config: Config, prompt_tokens: int) -> dict[str, Any]:
    """Return the estimate as plain data, in bytes."""
    import dataclasses

    from reference.trainer.memory import estimate as estimates
    from reference.trainer.memory import preflight

    shape = preflight.shape(config)
    plan = preflight.plan(config, prompt_tokens)
    found = estimates.estimate(shape, plan)
    return {**dataclasses.asdict(found), "peak": found.peak, "plan": dataclasses.asdict(plan)}


def lines(config: Config, prompt_tokens: int, available_gb: float | None) -> list[str]:
    """Return the estimate and the advice as lines of text."""
    import importlib

    from reference.trainer.memory import estimate as estimates
    from reference.trainer.memory import preflight

    shape = preflight.shape(config)
    available = (
        importlib.import_module("psutil").virtual_memory().total
        if available_gb is None
        else available_gb * estimates.GIGA
    )
    return preflight.sentences(shape, preflight.plan(config, prompt_tokens), float(available))


def lines_or_note(config: Config, prompt_tokens: int) -> list[str]:
    """Return the lines for this machine, or one note why there are none: what cannot be estimated may still be trained."""
    from reference.trainer.config.errors import TrainerError

    try:
        return lines(config, prompt_tokens, None)
    except TrainerError as error:
        return [f"note: whether the memory is enough is not known ({error})"]
