"""Render recorded files: verdicts, conformance, speeds or learning curves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from gates.config.format_names import ReportFormat
from gates.model import ConfigurationError
from gates.report import github
from gates.report.baseline import compare
from gates.report.conformance import document, html
from gates.report.conformance.screen import screen
from gates.report.destination import NAMES, Form, Kind, chosen
from gates.report.formats import pieces, render
from gates.report.html import render_html
from gates.report.learning import is_learning_file, read_curves, render_curves
from gates.report.speed.html import render_page
from gates.report.speed.markdown import render_pictures, render_speed
from gates.report.speed.screen import render_screen
from gates.results.common_cases import read_common
from gates.results.conformance_records import is_conformance_file, read_conformance
from gates.results.escape import visible
from gates.results.jsonl import Results, as_line, read, records_and_lines
from gates.results.library_facts import read_facts
from gates.results.records import DiagnosisRecord, HeaderRecord, VerdictRecord
from gates.results.speed_file import is_speed_file, read_speed
from gates.run.settle import settled_lines_of

SEPARATOR = ",\n"  # between the values of a list of JSON


def render_files(
    files: Sequence[Path], form: ReportFormat | None, baseline: Path | None, out: Path | None = None
) -> Iterator[str]:
    """Yield the pieces of one document over the files, which must be of one kind.

    Args:
        files: recorded results.
        form: its format; None for what `out` is named after, or the usual one of the data where that is None.
        baseline: show what changed since this run.
        out: where it will be written.
    """
    kind = kind_of(files)
    selected = chosen(kind, files[0], form, out)
    if baseline and kind != "verdicts":
        raise ConfigurationError(f"{files[0]} holds {NAMES[kind]}, to which --baseline does not apply")
    match kind:
        case "speeds":
            yield _speeds(files, selected)
        case "conformance":
            yield from _conformance(files, selected)
        case "curves":
            yield visible(render_curves(curve for path in files for curve in read_curves(path)))
        case "verdicts":
            yield from _verdicts(files, selected, baseline)


def kind_of(files: Sequence[Path]) -> Kind:
    """Return what the files hold.

    Raises:
        ConfigurationError: they hold different kinds of data.
    """
    kinds = [_kind(path) for path in files]
    for path, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise ConfigurationError(
                f"{files[0]} holds {NAMES[kinds[0]]} and {path} holds {NAMES[kind]}: render them separately"
            )
    return kinds[0]


def _kind(path: Path) -> Kind:
    if is_speed_file(path):
        return "speeds"
    if is_conformance_file(path):
        return "conformance"
    return "curves" if is_learning_file(path) else "verdicts"


def pictures_beside(files: Sequence[Path], form: ReportFormat | None, out: Path) -> dict[Path, str]:
    """Return the pictures that a document names, by the path at which it will look for them."""
    if not files or not is_speed_file(files[0]) or chosen("speeds", files[0], form, out) != "md":
        return {}
    pictures = render_pictures(map(read_speed, files))
    return {out.with_name(name): visible(text) for name, text in pictures.items()}


def _speeds(files: Sequence[Path], form: Form) -> str:
    render_runs = {"md": render_speed, "html": render_page}.get(form, render_screen)
    return visible(render_runs(map(read_speed, files)))


def _conformance(files: Sequence[Path], form: Form) -> Iterator[str]:
    libraries, folder = map(read_conformance, files), files[0].parent
    match form:
        case "html":
            yield html.render_page(libraries, read_facts(folder))
        case "text":
            yield from (visible(f"{line}\n") for library in libraries for line in screen(library, ()))
        case "jsonl":
            yield from (visible(line) for library in libraries for line in library.lines())
        case "json":
            documents = (json.dumps(library.document(), ensure_ascii=False) for library in libraries)
            yield visible(f'{{"libraries": [\n{SEPARATOR.join(documents)}\n]}}\n')
        case _:
            yield visible(document.render(libraries, read_facts(folder), read_common(folder)))


def _verdicts(files: Sequence[Path], form: Form, baseline: Path | None) -> Iterator[str]:
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
    assert form != "svg"  # verdicts have no such form
    yield from pieces(form, runs, changes)
    if form == "github":
        github.append_summary(render("md", runs, changes))


def _lines(files: Sequence[Path]) -> Iterator[str]:
    """Yield the lines of verdicts as they are recorded, and after those of each file what its diagnoses settle."""
    for path in files:
        for record, line in records_and_lines(path):
            match record:
                case HeaderRecord():
                    run = Results(path, record)  # without the verdicts that hold
                case DiagnosisRecord():
                    run.add(record)
                case VerdictRecord():
                    if record.status == "wrong":
                        run.add(record)
                    yield line.decode() + "\n"
        yield from map(as_line, settled_lines_of(run))
