"""`gates prove`: unmutated subjects pass, every mutant fails, and how small an error each gate notices."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gates.cli import engines
from gates.errors import FaultError

EXAMPLES = """Examples:

gates prove · gates prove kl --quick · gates prove --full --record"""


def prove(
    select: Annotated[
        list[str] | None, typer.Argument(metavar="[SELECT]...", help="Gates: ids, prefixes or globs. Default: all.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All cases and draws instead of the quick ones.")] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Mutants only, each until its gates fail: without baseline and sensitivities."),
    ] = False,
    jobs: Annotated[int, typer.Option(min=0, max=64, help="Workers side by side; 0: one per core.")] = 0,
    engine: engines.Name = "local",
    memory_limit: engines.MemoryLimit = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all cases.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the JSONL goes. Default: results/runs.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the JSONL under results/gates, to be committed.")
    ] = False,
) -> None:
    """Prove the gates: unmutated subjects must pass, then each known mistake must be caught in its host."""
    from gates.cli import selection, setup
    from gates.model import ConfigurationError
    from gates.mutation.prove import ProofRequest, demonstrate
    from gates.run import session
    from gates.run.plan import Options

    if quick and (full or record):
        raise ConfigurationError("--quick proves only that mutants are caught: leave out --full and --record")
    registry = setup.registry()
    watched = setup.watched(registry.subjects.values(), engine, memory_limit)
    registry = replace(registry, subjects={subject.name: subject for subject in watched})
    gates = selection.chosen(registry, select or ())
    setup.batch_scheduling()
    count = setup.jobs(jobs)
    options = Options(seed=seed, jobs=count, threads=setup.threads(count), quick=not full, full=full)
    writer = setup.writer("prove", out, record=record)
    try:
        with engines.opened(engine, registry) as executors:
            request = ProofRequest(registry, gates, options, writer, sys.argv[1:], typer.echo, executors, quick)
            code = demonstrate(request)
    except (KeyboardInterrupt, FaultError, OSError) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        why = "interrupted" if interrupted else f"gates: {error}"
        with contextlib.suppress(FaultError, OSError):
            typer.echo(f"{why}; what was proved so far is in {writer.path}", err=True)
            writer.close()
        # mutants may be running in threads; their workers end with this process
        os._exit(session.INTERRUPTED if interrupted else session.FAULT)
    writer.close()
    if record:
        setup.recorded(writer.path)
    raise typer.Exit(code)
