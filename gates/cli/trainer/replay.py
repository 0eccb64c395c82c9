"""`gates trainer replay`: recompute a traced run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gates.replay.run import Run

ENVIRONMENTS = ("transformers", "trl")  # peers that have transformers

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

    The forward pass shares nothing with the trainer: it is written in NumPy for the families that Gates has, and transformers computes
    the others in float64, if `gates peers sync transformers` made its environment. Exit code 0: all stages hold; 1: one does not; 2: there is no trace, or
    no forward pass for the model.
    """
    import json
    import time

    from gates.model import ConfigurationError
    from gates.replay import trace
    from gates.replay.forward import UnsupportedError
    from gates.replay.stages import STAGES
    from gates.report import replayed
    from gates.report.progress import Elapsed, console
    from gates.report.wrap import columns

    start = time.monotonic()
    results = {}
    with Elapsed(console(stderr=True), wanted=not as_json) as elapsed:
        elapsed.start(run.name)
        traced = _loaded(run, model or trace.model_folder(run))
        try:
            for name, stage in STAGES.items():
                elapsed.now(f"{run.name}: {name}")
                results[name] = stage(traced)
        except UnsupportedError as error:
            raise ConfigurationError(str(error)) from None
        finally:
            traced.base.close()
    if as_json:
        typer.echo(json.dumps(replayed.record(traced, results), indent=2, ensure_ascii=False))
    else:
        for line in replayed.lines(traced, results, columns(), time.monotonic() - start):
            console().print(line)
    raise typer.Exit(replayed.exit_code(results))


def _loaded(run: Path, model: Path) -> Run:
    """Read a run with the model that it began with, by NumPy if it has the family, else by transformers if that is here.

    Raises:
        ConfigurationError: there is no trace, a file is torn, or neither computes the model.
    """
    from gates.model import ConfigurationError
    from gates.replay import peer
    from gates.replay.forward import UnsupportedError
    from gates.replay.run import load_run
    from gates.subjects.peers import environments

    ready = [made for made in map(environments.environment, ENVIRONMENTS) if made.ready]
    otherwise = partial(peer.load, peer=peer.Peer(ready[0].python)) if ready else None
    try:
        return load_run(run, model, otherwise)
    except UnsupportedError as error:
        remedy = (
            "" if ready else f"; `gates peers sync {ENVIRONMENTS[0]}` makes an environment in which transformers does"
        )
        raise ConfigurationError(f"{error}{remedy}") from None
