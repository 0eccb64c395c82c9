"""`gates calibrate`: how often each gate refuses a correct subject, and the limits that are measured so."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gates.cli import engines

EXAMPLES = """Examples:

gates calibrate --only pure · gates calibrate kl advantages --seeds 100 · gates calibrate --only models --seeds 100 --record ·
gates calibrate --only pure --resume results/runs/calibrate-….jsonl · gates calibrate rollout.quantised --write-limits ·
gates calibrate --seed 200 --seeds 100 --record · gates calibrate --only pure --seeds-up-to 1000 --record

What is recorded adds up over sessions: `gates report results/gates/*.jsonl` sums all files over their seeds for each gate,
backend, BLAS and dtype, a seed that two files have once, and names the commits."""


class Only(StrEnum):
    """Which gates, by what a seed of them costs."""

    pure = "pure"
    models = "models"


def calibrate(
    select: Annotated[list[str] | None, typer.Argument(metavar="[SELECT]...", help="Gates. Default: all.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="How many seeds. Default: 20.", show_default=False)
    ] = None,
    seeds_up_to: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            help="Judge the seeds below this one that no recorded file of the same code of a gate has.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    subject: Annotated[
        list[str] | None, typer.Option("--subject", metavar="NAME|FILE", help="A correct subject; may be repeated.")
    ] = None,
    only: Annotated[
        Only | None, typer.Option(help="Gates of pure ops, or those that run a model; a seed of these takes minutes.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All cases and draws instead of the quick ones.")] = False,
    block: Annotated[int, typer.Option(min=1, help="Seeds of one line; what a SIGKILL loses.")] = 10,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on with the file of a run of this same command.")
    ] = None,
    write_limits: Annotated[
        bool, typer.Option("--write-limits", help="Renew gates/calibrated.json from this run and the recorded proofs.")
    ] = False,
    proofs: Annotated[
        Path, typer.Option(metavar="DIR", help="Where runs are recorded: proofs, and calibrations for --seeds-up-to.")
    ] = Path("results/gates"),
    engine: engines.Name = "local",
    memory_limit: engines.MemoryLimit = None,
    jobs: Annotated[int, typer.Option(min=0, max=64, help="Workers side by side; 0: one per core.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the JSONL goes. Default: results/runs.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the JSONL under results/gates, to be committed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSONL lines instead of text.")] = False,
) -> None:
    """Judge correct subjects at many seeds: every failure is a false alarm of its gate, named with the seed that shows it again."""
    from gates import calibration_past
    from gates.calibration import key
    from gates.calibration_session import Request, conduct
    from gates.cli import selection, setup
    from gates.model import ConfigurationError
    from gates.results.jsonl import read
    from gates.run import session
    from gates.run.plan import Options, plan, runs_a_model
    from gates.subjects import catalogue

    asked = _asked(seed, seeds, seeds_up_to, write_limits)
    if resume is not None and (out is not None or record):
        raise ConfigurationError("--resume names the file that is gone on with; leave out --out and --record")
    registry = setup.registry()
    chosen = selection.chosen(registry, select or ())
    gates = tuple(gate for gate in chosen if only is None or runs_a_model(gate) == (only is Only.models))
    if not gates:
        raise ConfigurationError(f"--only {only}: none of the {len(chosen)} chosen gates is of that kind")
    subjects = setup.watched(catalogue.choose(registry, tuple(subject or ()), None), engine, memory_limit)
    setup.batch_scheduling()
    count = setup.jobs(jobs)
    options = Options(seed=seed, jobs=count, threads=setup.threads(count), quick=not full, full=full)
    cells = plan(gates, subjects, quick=not full)
    header = session.header(
        session.RunInfo(
            "calibrate",
            sys.argv[1:],
            gates,
            subjects,
            options,
            len(cells) * len(asked),
            engine=engine,
            seeds=len(asked),
        )
    ).model_copy(update={"codes": calibration_past.codes(gates)})
    past = calibration_past.Past()
    if seeds_up_to is not None:
        began_with = read(resume).header.beside if resume is not None else None
        past = calibration_past.past(proofs, header, began_with)
        left = past.lacking(map(key, cells), asked)
        header = header.model_copy(update={"planned": left, "beside": list(past.files)})
        if not left and cells:  # without a cell nothing is measured, which the run's own end says
            typer.echo(
                f"nothing is left: {', '.join(past.files)} in {proofs} have seeds {seed} to {asked[-1]} of all cells"
            )
            raise typer.Exit(session.HELD)
    if resume is None:
        writer = setup.writer("calibrate", out, record=record)
        writer.close()
        resume = writer.path
    try:
        with engines.opened(engine, registry) as executors:
            request = Request(gates, cells, options, asked, block, header, write_limits, proofs, executors, past)
            code = conduct(request, resume, as_json=as_json)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; nothing that was judged is lost: repeat the command with --resume {resume}", err=True)
        raise typer.Exit(session.INTERRUPTED) from None
    raise typer.Exit(code)


def _asked(first: int, count: int | None, end: int | None, write_limits: bool) -> range:
    """Return the seeds that were asked for."""
    from gates.model import ConfigurationError

    if end is None:
        return range(first, first + (count or 20))
    if count is not None:
        raise ConfigurationError("--seeds says how many and --seeds-up-to which is the end; give one of them")
    if write_limits:
        raise ConfigurationError(
            "--write-limits measures over the seeds of its own run; give --seeds, not --seeds-up-to"
        )
    if end <= first:
        raise ConfigurationError(f"--seeds-up-to {end}: must be more than --seed, which is {first}")
    return range(first, end)
