"""`gates calibrate`: measure the rate of false positives of each gate."""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gates.cli import engines
from gates.errors import FaultError

if TYPE_CHECKING:
    from gates.results.jsonl import Results

EXAMPLES = """Examples:

gates calibrate --only pure · gates calibrate kl advantages --seeds 100 · gates calibrate --only models --seeds 100 --record ·
gates calibrate --only pure --resume results/runs/calibrate-….jsonl ·
gates calibrate --seed 200 --seeds 100 --record · gates calibrate --only pure --seeds-up-to 1000 --record

Recorded seeds add up over sessions in results/gates/calibration.jsonl: a seed in several runs counts once, and seeds judged
by older code of a gate are dropped. `gates report results/gates/calibration.jsonl` shows the rate of false positives of
each gate, backend, BLAS and dtype with its 95% upper bound."""


class Only(StrEnum):
    """Groups of gates by the cost of one seed."""

    pure = "pure"
    models = "models"


def calibrate(
    select: Annotated[
        list[str] | None, typer.Argument(metavar="[SELECT]...", help="Gates: ids, prefixes or globs. Default: all.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Number of seeds. Default: 20.", show_default=False)
    ] = None,
    seeds_up_to: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Judge the seeds below this one that are missing from the recorded summary."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    subject: Annotated[
        list[str] | None, typer.Option("--subject", metavar="NAME|FILE", help="A correct subject; may be repeated.")
    ] = None,
    only: Annotated[
        Only | None,
        typer.Option(help="Only gates of pure ops, or only those that run a model, which take minutes per seed."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All cases and draws instead of the quick ones.")] = False,
    block: Annotated[int, typer.Option(min=1, help="Seeds per write to the file; a SIGKILL loses at most these.")] = 10,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Resume an interrupted run of the same command from its file.")
    ] = None,
    proofs: Annotated[Path, typer.Option(metavar="DIR", help="Where calibration.jsonl is recorded.")] = Path(
        "results/gates"
    ),
    engine: engines.Name = "local",
    memory_limit: engines.MemoryLimit = None,
    jobs: Annotated[int, typer.Option(min=0, max=64, help="Number of workers; 0: one per core.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the run's JSONL goes. Default: results/runs.")
    ] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Afterwards add the seeds to calibration.jsonl in --proofs, to be committed."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSONL lines instead of text.")] = False,
) -> None:
    """Judge correct subjects at many seeds: every failure is a false positive of its gate, reported with the seed that reproduces it."""
    from gates.cli import output, selection, setup
    from gates.model import ConfigurationError
    from gates.report.calibration_progress import shown
    from gates.results.jsonl import read
    from gates.run import session
    from gates.run.calibration import Request, conduct, missing
    from gates.run.calibration_summary import NAME, done, exit_code
    from gates.run.calibration_summary import record as merge
    from gates.run.code_digest import codes
    from gates.run.plan import Options, plan, runs_a_model
    from gates.subjects import catalogue

    wanted = _seeds(seed, seeds, seeds_up_to)
    if resume is not None and out is not None:
        raise ConfigurationError("--resume writes to the file that it names; leave out --out")
    registry = setup.registry()
    chosen = selection.chosen(registry, select or ())
    gates = tuple(gate for gate in chosen if only is None or runs_a_model(gate) == (only is Only.models))
    if not gates:
        raise ConfigurationError(f"--only {only}: none of the {len(chosen)} selected gates is of that kind")
    subjects = setup.watched(catalogue.choose(registry, tuple(subject or ()), None), engine, memory_limit)
    setup.batch_scheduling()
    count = setup.jobs(jobs)
    options = Options(seed=seed, jobs=count, threads=setup.threads(count), quick=not full, full=full)
    cases = plan(gates, subjects, quick=not full, proof=True)
    header = session.header(
        session.RunInfo(
            "calibrate",
            sys.argv[1:],
            gates,
            subjects,
            options,
            len(cases) * len(wanted),
            engine=engine,
            seeds=len(wanted),
        )
    ).model_copy(update={"codes": codes(gates)})
    summary = proofs / NAME
    recorded = {}
    if seeds_up_to is not None:
        recorded = done(read(summary), header, ("judged", "unsupported")) if summary.is_file() else {}
        left = sum(1 for _ in missing(cases, wanted, recorded))
        header = header.model_copy(update={"planned": left, "beside": [NAME]})
        if not left and cases:  # a plan without cases is reported at the end of the run
            typer.echo(f"nothing to do: {summary} has seeds {seed} to {wanted[-1]} of all cases")
            raise typer.Exit(session.HELD)
    resume = resume or _new_file(out)
    try:
        with engines.opened(engine, registry) as executors:
            request = Request(cases, options, wanted, block, header, executors, recorded)
            results = conduct(request, resume, partial(shown, quiet=as_json))
    except KeyboardInterrupt:
        typer.echo(f"interrupted; all judged seeds are kept: repeat the command with --resume {resume}", err=True)
        raise typer.Exit(session.INTERRUPTED) from None
    except (FaultError, OSError) as error:
        raise output.ended_early(error, resume, lambda path: f"the same command and --resume {path}") from None
    _print(results, as_json=as_json)
    if record:
        for note in merge(results, summary, codes(registry.gates.values())):
            typer.echo(note, err=True)
    raise typer.Exit(exit_code(results.calibrations))


def _new_file(folder: Path | None) -> Path:
    """Create an empty results file, so that a new run uses the resume path."""
    from gates.cli import setup

    writer = setup.writer("calibrate", folder, record=False)
    writer.close()
    return writer.path


def _print(results: Results, *, as_json: bool) -> None:
    """Print the file's lines as JSON, or a summary of them."""
    from gates.report import calibration
    from gates.report.progress import console
    from gates.results.escape import visible

    text = results.path.read_text(encoding="utf-8").rstrip("\n").split("\n")  # no other character ends a line of JSON
    for line in text if as_json else calibration.text(results):
        console().print(visible(line), markup=False)


def _seeds(first: int, count: int | None, end: int | None) -> range:
    """Return the seeds that the options select."""
    from gates.model import ConfigurationError

    if end is None:
        return range(first, first + (count or 20))
    if count is not None:
        raise ConfigurationError("--seeds is a number of seeds and --seeds-up-to is their end; give one of them")
    if end <= first:
        raise ConfigurationError(f"--seeds-up-to {end}: must be more than --seed, which is {first}")
    return range(first, end)
