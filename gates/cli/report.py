"""`gates report`: render recorded results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gates.config.format_names import ReportFormat

EXAMPLES = """Examples:

gates report results/runs/check-….jsonl · gates report results/gates/*.jsonl* --out results/REPORT.md · gates report results/bench/*.jsonl --out results/SPEED.md · gates report results/bench/*.jsonl --out speed.html · gates report results/learning/curves.jsonl --out results/learning/curves.svg · gates report FILE.jsonl --format junit --out gates.xml · gates report NEW.jsonl --baseline OLD.jsonl --format text · gates report --schema"""


def report(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE.jsonl...", help="Recorded results.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there, atomically.")] = None,
    form: Annotated[
        ReportFormat | None,
        typer.Option(
            "--format",
            help="Default: md. Speeds: text, md or html; by default text, or what --out FILE is named after. Curves: one.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="Show what changed from this run to the one rendered.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a results line.")] = False,
    speed_schema: Annotated[
        bool, typer.Option("--speed-schema", help="Print that of a line in results/bench.")
    ] = False,
) -> None:
    """Render results files: verdicts in any format, speeds as text, markdown or a page, learning curves as a picture."""
    import json

    from gates.model import ConfigurationError
    from gates.report.files import pictures_beside, render_files
    from gates.results.atomic_write import write_whole
    from gates.results.jsonl import uncollected
    from gates.results.records import schema as json_schema
    from gates.results.speed_records import speed_schema as json_speed_schema

    if schema or speed_schema:
        pieces = iter(
            [json.dumps(json_schema() if schema else json_speed_schema(), indent=2, ensure_ascii=False), "\n"]
        )
    elif files:
        pieces = render_files(files, form, baseline, out)
    else:
        raise ConfigurationError("report needs at least one FILE.jsonl; a run prints its path at the end")
    with uncollected():
        if out is None:
            for piece in pieces:
                typer.echo(piece, nl=False)
        else:
            write_whole(out, pieces)
            for path, text in pictures_beside(files or [], form, out).items():
                write_whole(path, text)
