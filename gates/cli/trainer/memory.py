"""`gates trainer memory`: estimate a run's memory from a model's config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gates.cli.trainer.configuration import Json, Settings

EXAMPLES = """Examples:

gates trainer memory examples/qwen3-0.6b-4bit.toml · gates trainer memory run.toml --available-gb 48 --prompt-tokens 97 ·
gates trainer memory run.toml --set rollout.samples_per_prompt=2 --json"""


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

    from gates.cli.trainer import configuration, preflight

    with configuration.user_errors():
        chosen = configuration.configured(config, settings, model_here=False)
        tokens = prompt_tokens or chosen.data.max_prompt_tokens
        if as_json:
            typer.echo(json.dumps(preflight.estimated(chosen, tokens), indent=2))
        else:
            typer.echo("\n".join(preflight.lines(chosen, tokens, available_gb)))
