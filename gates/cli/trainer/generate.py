"""`gates trainer generate`: completions of prompts, with the random draws of a training rollout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gates.cli.trainer.configuration import Json, Settings

EXAMPLES = """Examples:

gates trainer generate examples/tiny.toml --prompt "12+30=" · gates trainer generate run.toml --prompt "Why?" --samples 4 --max-tokens 64 ·
gates trainer generate run.toml --prompt "12+30=" --adapter runs/run/checkpoints/step-00000020 --json"""


def generate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file; see examples/.")],
    prompt: Annotated[list[str], typer.Option("--prompt", help="A prompt; may be repeated.")],
    settings: Settings = None,
    adapter: Annotated[
        Path | None,
        typer.Option("--adapter", metavar="DIR", help="A folder with adapters. Default: the run's newest checkpoint."),
    ] = None,
    base: Annotated[bool, typer.Option("--base", help="The model without adapters.")] = False,
    samples: Annotated[int | None, typer.Option(min=1, help="Completions of a prompt.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of a completion.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="0: always the likeliest token.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draws.")] = None,
    as_json: Json = False,
) -> None:
    """Complete prompts with the model, data and sampling settings of a configuration."""
    from gates.cli.trainer import configuration
    from gates.model import ConfigurationError

    if base and adapter is not None:
        raise ConfigurationError("--base and --adapter exclude each other; give one of them")
    overrides = {"samples_per_prompt": samples, "max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    extra = [f"rollout.{key}={value}" for key, value in overrides.items() if value is not None]
    with configuration.user_errors():
        chosen = configuration.configured(config, [*(settings or []), *extra], verb="generate")
        from gates_reference.trainer import storage
        from gates_reference.trainer.loop import generate as loop_generate

        completions = loop_generate.run(chosen, prompt, adapter, base=base)
    if as_json:
        typer.echo(storage.encoded(completions, indent=2).decode())
        return
    for completion in completions:
        typer.echo(f"{completion['prompt']}{completion['completion']}" + ("" if completion["ended"] else " …"))
