"""`gates check`: judge subjects and say what held."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

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
        int | None, typer.Option(min=0, max=64, help="Workers side by side. Default: 0, one per core.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all cases. Default: 0.")] = None,
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
        typer.Option("--format", help="What is printed. Default: text; under GitHub Actions github: annotations too."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
) -> None:
    """Run gates on subjects; print each verdict, what failed and why, and a full count as the last line.

    A project's own defaults stand in its pyproject.toml, in the table tool.gates: subjects, select, require, model, python, jobs, seed, out, format, waivers. What the command line says wins.
    """
    from gates import session
    from gates.cli import output, project, setup
    from gates.model import ConfigurationError
    from gates.report.text import Screen
    from gates.runner import Options, plan

    if quick and full:
        raise ConfigurationError("--quick and --full exclude each other")
    asked = project.asked(setup.registry(), select, subject, require, python, waivers, quick=quick)
    told, gates, subjects = asked.told, asked.gates, asked.subjects
    shown = output.chosen(form or (None if as_json else told.format), as_json=as_json)
    before = output.since(baseline, shown)
    jobs_count = setup.jobs(told.jobs if jobs is None else jobs)
    options = Options(
        seed=told.seed if seed is None else seed,
        jobs=jobs_count,
        threads=setup.threads(jobs_count),
        quick=quick,
        full=full,
        model=setup.model(model or told.model),
    )
    cells = plan(gates, subjects, quick=quick)
    writer = setup.writer("check", out or (Path(told.out) if told.out and not record else None), record=record)
    screen = Screen(len(cells), shown)
    writer.write(session.header("check", sys.argv[1:], gates, subjects, options, len(cells), asked.waivers))
    try:
        with screen:
            tally = session.check(cells, options, writer, asked.requirements, screen.verdict, asked.waivers)
    except KeyboardInterrupt:
        screen.interrupted(writer.path)
        raise typer.Exit(session.INTERRUPTED) from None
    finally:
        writer.close()
    output.end(screen, writer.path, tally, before)
    raise typer.Exit(tally.exit_code())
