"""`gates report`: render recorded results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gates.config.format_names import ReportFormat

EXAMPLES = """Examples:

gates report results/runs/check-….jsonl · gates report results/runs/check-….jsonl --open · gates report results/gates/*.jsonl* --out results/REPORT.md · gates report results/conformance/*.jsonl --out conformance.html · gates report results/bench/*.jsonl --out speed.html · gates report results/learning/curves.jsonl --out results/learning/curves.svg · gates report FILE.jsonl --out gates.xml · gates report NEW.jsonl --baseline OLD.jsonl --format text · gates report --schema"""


def report(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE.jsonl...", help="Recorded results.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write there, atomically: .md, .html, .json, .jsonl, .xml (JUnit), .sarif, .txt; curves: .svg.",
        ),
    ] = None,
    form: Annotated[
        ReportFormat | None,
        typer.Option(
            "--format", help="Default: what --out is named after; else md, of speeds text, of curves a picture."
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--open", help="Write a page, to --out or a temporary file, and open it in the browser.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="Show what changed from this run to the one rendered.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a results line.")] = False,
    speed_schema: Annotated[
        bool, typer.Option("--speed-schema", help="Print that of a line in results/bench.")
    ] = False,
    settings_schema: Annotated[
        bool, typer.Option("--settings-schema", help="Print that of the table tool.gates in pyproject.toml.")
    ] = False,
) -> None:
    """Render results files: verdicts, grades of libraries and speeds as text, documents or a page, learning curves as a picture."""
    from gates.model import ConfigurationError
    from gates.report.files import pictures_beside, render_files
    from gates.results.atomic_write import write_whole
    from gates.results.jsonl import uncollected

    if any((schema, speed_schema, settings_schema)):
        pieces = iter([_schema(results=schema, speeds=speed_schema, settings=settings_schema)])
    elif files:
        if show:
            form, out = _page(form, out)
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
    if show and out is not None:
        _open(out)


def _schema(*, results: bool, speeds: bool, settings: bool) -> str:
    """Return the one JSON Schema that is asked for."""
    import json

    from gates.config.settings import settings_schema
    from gates.model import ConfigurationError
    from gates.results.records import schema
    from gates.results.speed_records import speed_schema

    if results + speeds + settings > 1:
        raise ConfigurationError("--schema, --speed-schema and --settings-schema print one schema: give one of them")
    value: dict[str, Any] = schema() if results else speed_schema() if speeds else settings_schema()
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _page(form: ReportFormat | None, out: Path | None) -> tuple[ReportFormat, Path]:
    """Return format and file of a page that will be opened; without a file a temporary one, which is kept."""
    import tempfile

    from gates.model import ConfigurationError

    if form not in {None, "html"} or (out is not None and out.suffix.lower() not in {".html", ".htm"}):
        contrary = f"--format {form}" if form not in {None, "html"} else f"--out {out}"
        raise ConfigurationError(f"--open writes a page, which {contrary} is not: leave it out, or name a .html file")
    return "html", out or Path(tempfile.mkdtemp(prefix="gates-")) / "report.html"


def _open(page: Path) -> None:
    """Open a page in the browser, and print its path."""
    import webbrowser

    opened = webbrowser.open(page.resolve().as_uri())
    typer.echo(f"opened {page}" if opened else f"no browser here: open {page}")
