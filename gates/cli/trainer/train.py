"""`gates trainer train`: train as configured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gates.cli.trainer.configuration import Json, Settings

if TYPE_CHECKING:
    from gates_reference.trainer.config.read import Config

EXAMPLES = """Examples:

gates trainer train examples/tiny.toml · gates trainer train examples/tiny.toml --set loop.steps=5 --set algorithm.name=dapo ·
gates trainer train run.toml --dry-run · gates trainer train run.toml --resume"""


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
    from gates.cli.trainer import configuration

    with configuration.user_errors():
        chosen = configuration.configured(config, settings, model_here=not dry_run)
        if dry_run:
            _dry_run(chosen, as_json=as_json)
            return
        from gates.cli.trainer import stopped
        from gates_reference.trainer.checkpoint import folders
        from gates_reference.trainer.config import algorithm
        from gates_reference.trainer.engine import guard
        from gates_reference.trainer.loop import run

        longest = [chosen.data.max_prompt_tokens]

        def ready(tokens: int) -> None:
            longest[0] = tokens
            for warning in (stopped.may_not_fit(chosen, tokens), stopped.slow_rollouts(chosen)):
                if warning:
                    typer.echo(f"gates: {warning}", err=True)

        try:
            summary = run.train(chosen, algorithm.create(chosen), resume=resume, ready=ready)
        except guard.NonFiniteError as error:
            typer.echo(f"gates: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            done = folders.newest(Path(chosen.output.folder) / "checkpoints")[1].get("step", 0)
            typer.echo(f"gates: {stopped.interrupted(done, config, settings or ())}", err=True)
            raise typer.Exit(130) from None
        except (RuntimeError, MemoryError) as error:
            if not stopped.no_memory(error):
                raise
            typer.echo(f"gates: {stopped.out_of_memory(chosen, longest[0], error)}", err=True)
            raise typer.Exit(1) from None
    _report(summary, as_json=as_json)


def _dry_run(config: Config, *, as_json: bool) -> None:
    import json

    from gates.cli.trainer import preflight
    from gates_reference.trainer.config import write
    from gates_reference.trainer.loop import inputs

    inputs.read(config)
    tables = config.model_dump(mode="json")
    if as_json:
        estimate = preflight.estimated(config, config.data.max_prompt_tokens)
        typer.echo(json.dumps({"configuration": tables, "memory": estimate}, indent=2))
        return
    typer.echo(write.toml(tables))
    typer.echo("\n".join(preflight.lines(config, config.data.max_prompt_tokens, None)))


def _report(summary: Any, *, as_json: bool) -> None:
    import json

    for warning in summary.warnings:
        typer.echo(f"gates: {warning}", err=True)
    facts = {
        "folder": str(summary.folder),
        "steps": summary.steps,
        "adapter_digest": summary.adapter_digest,
        "metrics": summary.metrics,
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    typer.echo(f"{summary.steps} steps, {_progress(summary)}, adapters {summary.adapter_digest[:12]}: {summary.folder}")


def _progress(summary: Any) -> str:
    """Return the first and the last mean reward, or mean margin of pairs; a resumed run that was complete has no values."""
    if not summary.metrics:
        return "all of them taken before"
    ends = (summary.first, summary.metrics)
    measure = "margin" if any("margin_mean" in numbers for numbers in ends) else "reward"
    values = [numbers.get(f"{measure}_mean", "unknown") for numbers in ends]
    first, last = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in values)
    return f"mean {measure} {first} in the first and {last} in the last"
