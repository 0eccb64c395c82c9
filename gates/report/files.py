"""Render recorded files: verdicts, speeds or learning curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gates.config.format_names import ReportFormat
from gates.model import ConfigurationError
from gates.report import conformance, github
from gates.report.baseline import compare
from gates.report.formats import pieces, render
from gates.report.html import render_html
from gates.report.learning import is_learning_file, read_curves, render_curves
from gates.report.speed.html import render_page
from gates.report.speed.markdown import render_pictures, render_speed
from gates.report.speed.screen import render_screen
from gates.results.conformance_records import is_conformance_file, read_conformance
from gates.results.escape import visible
from gates.results.jsonl import read, records_and_lines
from gates.results.records import VerdictRecord
from gates.results.speed_file import is_speed_file, read_speed

SPEED_FORMS = ("text", "md", "html")


def render_files(
    files: Sequence[Path], form: ReportFormat | None, baseline: Path | None, out: Path | None = None
) -> Iterator[str]:
    """Yield the pieces of one document over the files, which must be of one type.

    Args:
        files: recorded results.
        form: its format; None for markdown, and for speeds what `out` is named after, or text where it is None.
        baseline: show what changed since this run.
        out: where it will be written.
    """
    speeds = [path for path in files if is_speed_file(path)]
    if speeds:
        yield from _speeds(files, speeds, form or _speed_form(out), baseline)
        return
    form = form or "md"
    libraries = [path for path in files if is_conformance_file(path)]
    if libraries:
        if len(libraries) < len(files):
            raise ConfigurationError(
                f"{libraries[0]} holds a conformance record and another file does not: render them separately"
            )
        if form != "md" or baseline:
            raise ConfigurationError(
                f"{libraries[0]} holds grades of a library, which are rendered as md, without --baseline"
            )
        yield visible(conformance.render(map(read_conformance, libraries)))
        return
    curves = [path for path in files if is_learning_file(path)]
    if curves and len(curves) < len(files):
        raise ConfigurationError(f"{curves[0]} holds learning curves and another file does not: render them separately")
    if not curves:
        yield from _verdicts(files, form, baseline)
        return
    if form != "md" or baseline:
        option = f"--format {form}" if form != "md" else "--baseline"
        raise ConfigurationError(f"{files[0]} holds no verdicts, so {option} does not apply")
    yield visible(render_curves(curve for path in curves for curve in read_curves(path)))


def pictures_beside(files: Sequence[Path], form: ReportFormat | None, out: Path) -> dict[Path, str]:
    """Return the pictures that a document names, by the path at which it will look for them."""
    if not files or not is_speed_file(files[0]) or (form or _speed_form(out)) != "md":
        return {}
    pictures = render_pictures(map(read_speed, files))
    return {out.with_name(name): visible(text) for name, text in pictures.items()}


def _speed_form(out: Path | None) -> ReportFormat:
    if out is None:
        return "text"
    return "html" if out.suffix in {".html", ".htm"} else "md"


def _speeds(files: Sequence[Path], speeds: Sequence[Path], form: ReportFormat, baseline: Path | None) -> Iterator[str]:
    if len(speeds) < len(files):
        raise ConfigurationError(f"{speeds[0]} holds speeds and another file something else: render them separately")
    if form not in SPEED_FORMS or baseline:
        option = "--baseline" if baseline else f"--format {form}"
        raise ConfigurationError(
            f"{speeds[0]} holds speeds, to which {option} does not apply; must be --format {', '.join(SPEED_FORMS)}"
        )
    render = {"text": render_screen, "md": render_speed, "html": render_page}[form]
    yield visible(render(map(read_speed, speeds)))


def _verdicts(files: Sequence[Path], form: ReportFormat, baseline: Path | None) -> Iterator[str]:
    if baseline and len(files) > 1:
        raise ConfigurationError("--baseline compares with one run: give one FILE.jsonl")
    if form == "html" and not baseline:
        yield render_html(files)  # reads line by line, without holding all verdicts
        return
    if form == "jsonl" and not baseline:
        yield from map(visible, _lines(files))
        return
    runs = [read(path) for path in files]
    changes = compare(read(baseline), runs[0]) if baseline else None
    yield from pieces(form, runs, changes)
    if form == "github":
        github.append_summary(render("md", runs, changes))


def _lines(files: Sequence[Path]) -> Iterator[str]:
    """Yield the lines of verdicts as they are recorded."""
    for path in files:
        for record, line in records_and_lines(path):
            if isinstance(record, VerdictRecord):
                yield line.decode() + "\n"
