"""Render recorded runs in a chosen format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gates.config.format_names import ReportFormat
from gates.model import ConfigurationError
from gates.report import github, junit, markdown, plain, sarif
from gates.report.baseline import Changes
from gates.report.changes import changes_document, changes_text
from gates.report.grades import Grades
from gates.report.subjects import standings
from gates.results.escape import visible
from gates.results.jsonl import Results, as_line
from gates.results.records import Record
from gates.run.settle import settled_lines_of, settled_run

WITHOUT_CHANGES = ("jsonl", "junit", "sarif")
SETTLED = (
    "text",
    "md",
    "json",
    "junit",
    "sarif",
    "github",
)  # with `differs` for the cases of an op that makes another choice
OF_CHECKS = ("junit", "sarif", "github")  # a proof expects its mutants to fail, which these cannot express


def render(form: ReportFormat, runs: Sequence[Results], changes: Changes | None = None) -> str:
    """Return one or more runs, and what changed since a baseline, as text."""
    return "".join(pieces(form, runs, changes))


def pieces(form: ReportFormat, runs: Sequence[Results], changes: Changes | None = None) -> Iterator[str]:
    """Yield that text in pieces, since it may not fit in memory; terminal control characters are escaped."""
    return map(visible, _pieces(form, runs, changes))


def _pieces(form: ReportFormat, runs: Sequence[Results], changes: Changes | None) -> Iterator[str]:
    refuse(form, changed=changes is not None)
    _refuse_proofs(form, runs)
    runs = [settled_run(run) for run in runs] if form in SETTLED else runs
    match form:
        case "text":
            yield f"{changes_text(changes)}\n\n" if changes else ""
            yield plain.render_text(runs)
        case "md":
            yield markdown.render(runs, changes)
        case "json":
            yield from _document(runs, changes)
        case "jsonl":
            for run in runs:
                yield from map(as_line, run.verdicts)
                yield from map(as_line, settled_lines_of(run))
        case "junit":
            yield from junit.junit_pieces(runs)
        case "sarif":
            yield sarif.sarif(runs)
        case "github":
            yield from (f"{line}\n" for line in github.commands(runs))
            yield from _pieces("text", runs, changes)
        case "html":
            from gates.report import html  # noqa: PLC0415  templates, for a page only

            yield html.render_html([run.path for run in runs], changes)


def refuse(form: ReportFormat, *, changed: bool) -> None:
    """Raise if a format cannot show changes since a baseline."""
    if changed and form in WITHOUT_CHANGES:
        raise ConfigurationError(f"--format {form} has no place for --baseline; text, md, json, github and html have")


def _refuse_proofs(form: ReportFormat, runs: Sequence[Results]) -> None:
    """Raise if a format shows checks alone, and a run is of another verb."""
    for run in runs:
        if form in OF_CHECKS and run.header.verb != "check":
            raise ConfigurationError(f"{run.path} is a run of `gates {run.header.verb}`: --format {form} shows checks")


def _document(runs: Sequence[Results], changes: Changes | None) -> Iterator[str]:
    """Yield one JSON value: the records of each run by type, one per line."""
    yield '{"runs": ['
    for number, run in enumerate(runs):
        name, state = (json.dumps(words, ensure_ascii=False) for words in (run.path.name, run.state))
        yield f'{"," if number else ""}\n{{"file": {name}, "state": {state},\n"header": {as_line(run.header).rstrip()}'
        records: dict[str, Sequence[Record]] = {
            "subjects": run.subjects,
            "models": run.models,
            "verdicts": run.verdicts,
            "mutants": run.mutants,
            "sensitivities": run.sensitivities,
            "counterexamples": run.counterexamples,
            "diagnoses": run.diagnoses,
            "resumes": run.resumes,
            "calibrations": run.calibrations,
        }
        for kind, items in records.items():
            yield f',\n"{kind}": ['
            for index, record in enumerate(items):
                yield ",\n" if index else "\n"
                yield as_line(record).rstrip()
            yield "]"
        grades = Grades.of_runs([run] if run.header.verb == "check" else ())
        totals = {item.subject: item.ops for item in standings(grades)}
        yield f',\n"totals": {json.dumps(totals, ensure_ascii=False)}'
        rows = ",\n".join(json.dumps(grade.record(), ensure_ascii=False) for grade in grades.grades())
        yield f',\n"grades": [{rows}]'
        yield f',\n"summary": {as_line(run.summary).rstrip() if run.summary else "null"}}}'
    yield "]"
    if changes:
        yield f',\n"changes": {json.dumps(changes_document(changes), ensure_ascii=False)}'
    yield "}\n"
