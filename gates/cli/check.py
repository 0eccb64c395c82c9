"""`gates check`: judge subjects and print what held. This file holds its options; check_run.py does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gates.cli import completion, engines, seeds, time_limits
from gates.config.format_names import CheckFormat, FailOn
from gates.errors import EXIT_CODES

EXAMPLES = f"""Examples:

gates check · gates check mine.py · gates check mine.py kl loss.grpo · gates check mine.py -k 'dapo and not float16' ·
gates check mine.py --watch · gates check --quick · gates check --subject numpy rollout --full ·
gates check rollout --model ./Qwen3-0.6B-4bit · gates check --subject mlxrl --require mlxrl ·
gates check --format junit > gates.xml · gates check --subject ./jitted.py --time-limit 120

{EXIT_CODES}"""


def check(
    select: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SELECT|FILE.py]...",
            autocompletion=completion.gates,
            help="Gates: ids, prefixes (kl, loss.gr) or globs (*.matches-definition); files are subjects. Default: all gates.",
        ),
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option(
            "--subject",
            metavar="NAME|FILE",
            autocompletion=completion.subjects,
            help="Who is judged; may be repeated. Default: subjects in [tool.gates], else the files *_gates.py here and below.",
        ),
    ] = None,
    keyword: Annotated[
        str | None,
        typer.Option(
            "-k",
            metavar="EXPRESSION",
            help="Cases whose names match, as in pytest: 'dapo and not (float16 or holes)'.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Judge again whenever a file in the folder of a subject changes.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(metavar="M", help="A model folder or Hugging Face id in place of the tiny model.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The quick cases only.")] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Variants of subjects too (rlkernels@avx2), and ten times the draws; half an hour."
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=0, max=64, metavar="N", help="Workers side by side. Default: 0, one per core.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            parser=seeds.parse, metavar="N", help="Seed of all cases; random draws one and prints it. Default: 0."
        ),
    ] = None,
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
            help="What is printed: text, md, json, jsonl, junit, sarif or github (annotations too). Default: text; under GitHub Actions github.",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            metavar="GRADE",
            help="The mildest grade that fails the run: wrong, differs, raises (default), fragile, imprecise.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail on every grade but correct, on exceptions in any case, and on hardening."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="A line for each case as it is judged, and the table of gates.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
    memory_limit: engines.MemoryLimit = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            callback=time_limits.positive,
            metavar="SECONDS",
            help="Time of each call of a subject; the first of an op in a process, which may compile, has five times as much. Default: that of its case, mostly 20.",
        ),
    ] = None,
    minimise: Annotated[
        bool, typer.Option(help="Shrink the inputs of the first few failures; `gates replay` judges them again.")
    ] = True,
    minimise_seconds: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="Time for each failure that is shrunk. Ctrl-C ends it earlier.")
    ] = 60.0,
) -> None:
    """Judge subjects, and grade each op: correct, imprecise, fragile, raises, differs or wrong.

    wrong: it is not the formula, or breaks a law. differs: it is another library's choice, which is named; declare it if it is meant. raises: an exception on ordinary input. fragile: it fails on rare input that runs produce (equal rewards, rows without tokens, overflow). imprecise: it loses precision that its dtype has. hardening, which is no grade: it fails on input that no pipeline produces (NaN in padding, strided arrays), or raises for a layout that it may not have.

    Exit code: 0 held · 1 a subject failed or a requirement is unmet · 2 usage · 3 nothing was measured · 4 our own fault (a gate raised, disk full) · 130 interrupted.

    The table tool.gates of a project's pyproject.toml sets defaults: subjects, select, require, model, python, jobs, seed, out, format, fail_on, waivers, time_limit. Options of the command line take precedence.
    """
    from gates.cli import check_run

    arguments = check_run.Arguments(
        select=select or [],
        subject=subject or [],
        model=model,
        quick=quick,
        full=full,
        jobs=jobs,
        seed=seed,
        shard=shard,
        resume=resume,
        engine=engine,
        out=out,
        record=record,
        require=require or [],
        python=python,
        waivers=waivers,
        baseline=baseline,
        form=form,
        as_json=as_json,
        memory_limit=memory_limit,
        time_limit=time_limit,
        shrink_seconds=minimise_seconds if minimise else 0.0,
        fail_on=fail_on,
        strict=strict,
        verbose=verbose,
        keyword=keyword,
        watch=watch,
    )
    raise typer.Exit(check_run.conduct(arguments))
