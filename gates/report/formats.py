"""Recorded runs in the form that was asked for: a pure function of their lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gates.baseline import Changes
from gates.model import ConfigurationError
from gates.report import github, html, junit, markdown, plain
from gates.report.changes import changes_document, changes_markdown, changes_text
from gates.report.format_names import ReportFormat
from gates.report.jsonl import Results
from gates.report.records import StrictRecord

WITHOUT_CHANGES = ("jsonl", "junit", "html")
OF_CHECKS = ("junit", "github")  # a mutant's failure is what a proof wants, which these cannot say


def render(form: ReportFormat, runs: Sequence[Results], changes: Changes | None = None) -> str:
    """Return the text of one or more runs, and of what changed since a baseline."""
    refuse(form, changed=changes is not None)
    for run in runs:
        if form in OF_CHECKS and run.header.verb != "check":
            raise ConfigurationError(f"{run.path} is a run of `gates {run.header.verb}`: --format {form} shows checks")
    match form:
        case "text":
            told = f"{changes_text(changes)}\n\n" if changes else ""
            text = told + plain.render_text(runs)
        case "md":
            text = markdown.render(runs) + (f"\n{changes_markdown(changes).rstrip()}\n" if changes else "")
        case "json":
            whole: dict[str, Any] = {"runs": [document(run) for run in runs]}
            whole |= {"changes": changes_document(changes)} if changes else {}
            text = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
        case "jsonl":
            verdicts = (verdict.model_dump(mode="json") for run in runs for verdict in run.verdicts)
            text = "".join(json.dumps(verdict, ensure_ascii=False) + "\n" for verdict in verdicts)
        case "junit":
            text = junit.render_junit(runs)
        case "github":
            text = "".join(f"{line}\n" for line in github.commands(runs)) + render("text", runs, changes)
        case "html":
            text = html.render_html([run.path for run in runs])
    return text


def refuse(form: ReportFormat, *, changed: bool) -> None:
    """Say which forms have no place for changes since a baseline."""
    if changed and form in WITHOUT_CHANGES:
        raise ConfigurationError(f"--format {form} has no place for --baseline; text, md, json and github have")


def document(run: Results) -> dict[str, Any]:
    """Return a run as one JSON value: its records by kind."""
    records: dict[str, Sequence[StrictRecord]] = {
        "subjects": run.subjects,
        "models": run.models,
        "verdicts": run.verdicts,
        "sensitivities": run.sensitivities,
    }
    return {
        "file": run.path.name,
        "state": run.state,
        "header": run.header.model_dump(mode="json"),
        **{name: [record.model_dump(mode="json") for record in found] for name, found in records.items()},
        "summary": run.summary.model_dump(mode="json") if run.summary else None,
    }
