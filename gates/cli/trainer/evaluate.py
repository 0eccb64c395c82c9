"""`gates trainer evaluate`: the rewards of a model or a run's checkpoint on prompts that it did not train on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gates.cli.trainer.configuration import Json, Settings

EXAMPLES = """Examples:

gates trainer evaluate run.toml · gates trainer evaluate run.toml --adapter runs/run/checkpoints/step-00000020 ·
gates trainer evaluate run.toml --set rollout.temperature=0 --set rollout.samples_per_prompt=1 --json"""


def evaluate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file; see examples/.")],
    settings: Settings = None,
    adapter: Annotated[
        Path | None,
        typer.Option("--adapter", metavar="DIR", help="A folder with adapters. Default: the run's newest checkpoint."),
    ] = None,
    base: Annotated[bool, typer.Option("--base", help="The model without adapters.")] = False,
    as_json: Json = False,
) -> None:
    """Draw completions of the validation prompts (of all prompts, if none are set apart) and print their mean rewards."""
    import json

    from gates.cli.trainer import configuration
    from gates.model import ConfigurationError

    if base and adapter is not None:
        raise ConfigurationError("--base and --adapter exclude each other; give one of them")
    with configuration.user_errors():
        chosen = configuration.configured(config, settings, verb="evaluate")
        from gates_reference.trainer.loop import evaluate as evaluation

        results = evaluation.run(chosen, adapter, base=base)
    if as_json:
        typer.echo(json.dumps(results, indent=2))
        return
    for name, value in results.items():
        shown = f"{value:.6g}" if isinstance(value, float) else value or "none, the base model"
        typer.echo(f"{name:28} {shown}")
