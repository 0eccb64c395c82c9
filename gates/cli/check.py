"""`gates check`: judge subjects and say what held."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gates.cli import engines
from gates.report.format_names import CheckFormat

EXAMPLES = """Examples:

gates check --quick · gates check kl loss.grpo · gates check rollout --full · gates check --subject ./mine.py ·
gates check rollout --model ./Qwen3-0.6B-4bit · gates check --subject mlxrl --require mlxrl ·
gates check --format junit > gates.xml"""


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
    jobs: Annotated[
        int | None, typer.Option(min=0, max=64, metavar="N", help="Workers side by side. Default: 0, one per core.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", help="Seed of all cases. Default: 0.")] = None,
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
    waivers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Failures that are waived. Default: gates.toml at the project's root."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl", help="Show what changed since this run; the exit code stays that of the run."
        ),
    ] = None,
    form: Annotated[
        CheckFormat | None,
        typer.Option(
            "--format",
            metavar="FORM",
            help="What is printed: text, md, json, jsonl, junit or github (annotations too). Default: text; under GitHub Actions github.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
    memory_limit: engines.MemoryLimit = None,
    minimise: Annotated[
        bool, typer.Option(help="Make the inputs of the first few failures as small as they go; `gates replay`.")
    ] = True,
    minimise_seconds: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="For each failure that is made small. Ctrl-C ends it earlier.")
    ] = 60.0,
) -> None:
    """Run gates on subjects; print each verdict, what failed and why, and a full count as the last line.

    A project's own defaults stand in its pyproject.toml, in the table tool.gates: subjects, select, require, model, python, jobs, seed, out, format, waivers. What the command line says wins.
    """
    from gates.cli import counterexamples, output, project, setup
    from gates.model import ConfigurationError
    from gates.report.text import Screen
    from gates.run import resume as resuming
    from gates.run import session, shards
    from gates.run.runner import Options, plan

    if quick and full:
        raise ConfigurationError("--quick and --full exclude each other")
    if resume and (out or record):
        raise ConfigurationError("--resume goes on in its own file; leave out --out and --record")
    registry = setup.registry()
    asked = project.asked(registry, select, subject, require, python, waivers, quick=quick)
    told, gates = asked.told, asked.gates
    subjects = setup.watched(asked.subjects, engine, memory_limit)
    shown = output.chosen(form or (None if as_json else told.format), as_json=as_json)
    before = output.since(baseline, shown)
    setup.in_batches()
    jobs_count = setup.jobs(told.jobs if jobs is None else jobs)
    options = Options(
        seed=told.seed if seed is None else seed,
        jobs=jobs_count,
        threads=setup.threads(jobs_count),
        quick=quick,
        full=full,
        model=setup.model(model or told.model),
    )
    whole = plan(gates, subjects, quick=quick)
    part = shards.Shard.parse(shard)
    cells = part.take(whole)
    asked.waivers.partial = part.count > 1
    header = session.header(
        "check", sys.argv[1:], gates, subjects, options, len(cells), part.record(whole), asked.waivers, engine
    )
    header = header.model_copy(update={"subject_files": session.file_digests(subjects, registry.subjects)})
    resumed = resuming.resume(resume, header, cells) if resume else None
    folder = out or (Path(told.out) if told.out and not record else None)
    writer = resumed.writer if resumed else setup.writer("check", folder, record=record)
    screen = Screen(len(cells), shown)
    judged_here = resumed.left if resumed else cells
    if resumed:
        screen.verdicts.extend(resumed.verdicts)
    else:
        writer.write(header)
    log = None if resumed and resumed.complete else writer
    small = counterexamples.Found(
        cells,
        options,
        registry.subjects,
        writer,
        silent=shown not in {"text", "github"},
        budget_s=minimise_seconds if minimise else 0.0,
        failures=resumed.still_large if resumed else [],
    )
    try:
        with engines.opened(engine, registry) as executors, screen:
            tally = session.check(
                judged_here,
                options,
                log,
                asked.requirements,
                small.watching(screen.verdict),
                executors,
                resumed=resumed,
                waivers=asked.waivers,
                before_summary=partial(small.record, screen.all_judged),
            )
    except KeyboardInterrupt:
        screen.interrupted(writer.path)
        typer.echo(f"go on with: {resuming.command(header.command, writer.path)}", err=True)
        raise typer.Exit(session.INTERRUPTED) from None
    finally:
        writer.close()
    small.show()
    output.notes(tally, registry)
    output.end(screen, writer.path, tally, before)
    raise typer.Exit(tally.exit_code())
