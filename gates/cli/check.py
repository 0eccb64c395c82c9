"""`gates check`: judge subjects and say what held."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gates.cli import engines

EXAMPLES = """Examples:

gates check --quick · gates check kl loss.grpo · gates check rollout --full · gates check --subject ./mine.py ·
gates check rollout --model ./Qwen3-0.6B-4bit · gates check --subject mlxrl --require mlxrl"""


def check(
    select: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SELECT]...", help="Gates: ids, prefixes (kl) or globs (kl.*). Default: all."),
    ] = None,
    subject: Annotated[
        list[str] | None, typer.Option("--subject", metavar="NAME|FILE", help="Who is judged; may be repeated.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="M", help="A model folder or Hugging Face id in place of the tiny model.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The quick cases only.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="All draws of the statistical gates, ten times as many; half an hour.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=0, max=64, help="Workers side by side; 0: one per core.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all cases.")] = 0,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Part I of N of the plan; `gates merge` joins the N files.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on in the file of an interrupted run of the same command.")
    ] = None,
    engine: engines.Name = "local",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the JSONL goes. Default: results/runs.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the JSONL under results/gates, to be committed.")
    ] = False,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUBJECT[:GATES]", help="Fail if this subject is skipped (with GATES: or unsupported there)."
        ),
    ] = None,
    python: Annotated[str | None, typer.Option(metavar="PATH", help="The interpreter for a subject FILE.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSONL lines instead of text.")] = False,
) -> None:
    """Run gates on subjects; print each verdict, what failed and why, and a full count as the last line."""
    from gates import resuming, session, shards
    from gates.cli import setup
    from gates.model import ConfigurationError
    from gates.report.text import Screen
    from gates.runner import Options, plan
    from gates.subjects import catalogue

    if quick and full:
        raise ConfigurationError("--quick and --full exclude each other")
    if resume and (out or record):
        raise ConfigurationError("--resume goes on in its own file; leave out --out and --record")
    registry = setup.registry()
    gates = registry.select(tuple(select or ()))
    subjects = catalogue.choose(registry, tuple(subject or ()), setup.interpreter(python))
    requirements = tuple(session.Requirement.parse(text, [s.name for s in subjects]) for text in require or ())
    jobs_count = setup.jobs(jobs)
    options = Options(
        seed=seed, jobs=jobs_count, threads=setup.threads(jobs_count), quick=quick, full=full, model=setup.model(model)
    )
    whole = plan(gates, subjects, quick=quick)
    part = shards.Shard.parse(shard)
    cells = part.take(whole)
    header = session.header("check", sys.argv[1:], gates, subjects, options, len(cells), part.record(whole), engine)
    resumed = resuming.resume(resume, header, cells) if resume else None
    writer = resumed.writer if resumed else setup.writer("check", out, record=record)
    screen = Screen(len(cells), as_json=as_json)
    if resumed:
        screen.verdicts.extend(resumed.verdicts)
        cells = resumed.left
    else:
        writer.write(header)
    log = None if resumed and resumed.complete else writer
    try:
        with engines.opened(engine, registry) as executors, screen:
            tally = session.check(cells, options, log, requirements, screen.verdict, executors, resumed)
    except KeyboardInterrupt:
        screen.interrupted(writer.path)
        typer.echo(f"go on with: {resuming.command(header.command, writer.path)}", err=True)
        raise typer.Exit(session.INTERRUPTED) from None
    finally:
        writer.close()
    screen.summary(writer.path, tally)
    raise typer.Exit(tally.exit_code())
