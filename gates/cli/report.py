"""`gates report`: render recorded results; a pure function of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """Examples:

gates report results/runs/check-….jsonl · gates report results/gates/*.jsonl --out results/REPORT.md · gates report --schema"""


def report(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE.jsonl...", help="Recorded results.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the markdown there, atomically.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a results line.")] = False,
) -> None:
    """Render markdown from results files; an unfinished one is shown as `incomplete: 12 of 40`."""
    import json

    from gates.model import ConfigurationError
    from gates.report.jsonl import read
    from gates.report.markdown import render
    from gates.report.records import schema as json_schema
    from gates.report.whole import write_whole

    if schema:
        text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    elif files:
        text = render([read(path) for path in files])
    else:
        raise ConfigurationError("report needs at least one FILE.jsonl; a run prints its path at the end")
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_whole(out, text)
