"""`gates trainer replay`: recompute a traced run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """Examples:

gates trainer train examples/tiny.toml --set output.trace=true --set loop.steps=3 --set output.folder=runs/traced

gates trainer replay runs/traced · gates trainer replay runs/traced --json · gates judge runs/traced"""


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that was trained with output.trace.")],
    model: Annotated[
        Path | None, typer.Option("--model", help="The folder of the model it began with. Default: where it was then.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recompute every quantity of a run in float64 from what it was made of, from rollouts to the reported numbers.

    The forward pass shares nothing with the trainer. Exit code 0: all stages hold; 1: one does not; 2: there is no trace, or
    no forward pass for the model.
    """
    import json
    import time

    from gates.model import ConfigurationError, UnsupportedError
    from gates.replay import trace
    from gates.replay.run import load_run
    from gates.replay.stages import STAGES
    from gates.report import replayed
    from gates.report.progress import Elapsed, console
    from gates.report.wrap import columns

    start = time.monotonic()
    try:
        traced = load_run(run, model or trace.model_folder(run))
    except UnsupportedError as error:
        raise ConfigurationError(str(error)) from None
    results = {}
    with Elapsed(console(stderr=True), wanted=not as_json) as elapsed:
        elapsed.start(run.name)
        for name, stage in STAGES.items():
            elapsed.now(f"{run.name}: {name}")
            results[name] = stage(traced)
    if as_json:
        typer.echo(json.dumps(replayed.record(traced, results), indent=2, ensure_ascii=False))
    else:
        for line in replayed.lines(traced, results, columns(), time.monotonic() - start):
            console().print(line)
    raise typer.Exit(replayed.exit_code(results))
