"""Render recorded runs as one HTML file that loads nothing from a network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from gates import registry
from gates.model import FAILURES, NOT_JUDGED, Op
from gates.report import calibration_plot, changes, smallest, web
from gates.report.baseline import Changes
from gates.report.grades import OpGrade
from gates.report.not_judged import condensed
from gates.report.ops import ops_of
from gates.report.page_data import Page, Run, gather
from gates.report.plain import MOST_IDLE
from gates.report.run_part import RunPart, base_of, run_parts
from gates.report.sensitivity_plot import plot
from gates.report.smallest import Entry
from gates.report.statuses import BY_GRADE, SHOWN_WORST_FIRST
from gates.report.subjects import TITLES, versions

MOST_REASONS = 300  # the matrix has the rest


def render_html(paths: Iterable[Path], changed: Changes | None = None) -> str:
    """Return the page of one or more files, and of what changed since a baseline.

    Text from subjects cannot become code: the template escapes it, the script sets it as text content, and the content
    security policy allows only this script, by its hash.
    """
    page = gather(paths)
    gates = registry.load().gates
    ops = ops_of(gates.values())
    parts = run_parts(page.runs, ops, gates)
    shown: dict[str, Any] = {
        "changed": _changed(changed) if changed else None,
        "reasons": _reasons(page),
        "plot": plot(page.sensitivities),
        "calibrations": _calibrations(page),
        "definitions": _definitions(page.runs, ops),
        "comparison": _comparison(page.runs),
    }
    return web.rendered(
        web.environment(),
        "run.html.j2",
        script="script.js",
        **shown,
        parts=parts,
        ops=ops,
        summary=_summary(parts),
        contents=_contents(page, parts, shown),
        page=page,
        data=Markup(page.as_json()),  # noqa: S704  `as_json` writes <, > and & as escapes
        most=MOST_REASONS,
        smallest=[entry for entry in page.smallest if smallest.shrunk(entry.record)],
        not_shrunk=smallest.not_shrunk(entry.record for entry in page.smallest),
        holes=condensed(page.holes),
        missed=[mutant for run in page.runs for mutant in run.mutants if mutant.state != "caught"],
        titles=TITLES,
        versions=versions,
        fold=len(page.idle) > MOST_IDLE,
    )


def _contents(page: Page, parts: Sequence[RunPart], shown: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return id and title of each section that the page has, in its order."""
    runs = [(part.id, part.title, True) for part in parts] if len(parts) > 1 else []
    sections = [
        ("changes", "Changes", shown["changed"]),
        *runs,
        ("definitions", "Definitions", shown["definitions"]),
        ("comparison", "Subjects side by side", shown["comparison"]),
        ("verdicts", "Gates and cases", page.gates),
        ("reasons", "What did not hold", shown["reasons"]),
        ("counterexamples", "Smallest inputs", page.smallest),
        ("holes", "Not judged", page.holes),
        ("mutants", "Mutants", page.mutants),
        ("sensitivity", "Sensitivity", shown["plot"]),
        ("calibration-1", "Calibration", shown["calibrations"]),
    ]
    return [(name, title) for name, title, content in sections if content]


def _summary(parts: Sequence[RunPart]) -> list[tuple[RunPart, str, Mapping[str, int]]]:
    """Return run, title and grades of each subject, if there is more than one."""
    rows = [(part, subject.title, subject.totals) for part in parts for subject in part.subjects]
    return rows if len(rows) > 1 else []


def _definitions(runs: Sequence[Run], ops: Mapping[str, Op]) -> list[Op]:
    """Return the ops that were judged and have a definition, by name."""
    names = {base_of(grade.op) for run in runs for grade in run.grades.grades()}
    return [ops[name] for name in sorted(names & ops.keys())]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The grade of each op that is not correct everywhere, for each subject of each run."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[OpGrade | None]]]


def _comparison(runs: Sequence[Run]) -> Comparison | None:
    """Return the ops with their grade for each subject, those that are not correct first; nothing of one subject."""
    keys = [(number, subject) for number, run in enumerate(runs) for subject in sorted(run.grades.subjects)]
    if len(keys) < 2:
        return None
    grades = {(number, g.subject, g.op): g for number, run in enumerate(runs) for g in run.grades.grades()}
    names = [subject for _, subject in keys]
    columns = [name if names.count(name) == 1 else f"{name}, {runs[number].name}" for number, name in keys]
    rows = [(op, [grades.get((*key, op)) for key in keys]) for op in sorted({op for _, _, op in grades})]
    rows.sort(key=lambda row: min(BY_GRADE.index(grade.status) for grade in row[1] if grade))
    return Comparison(columns, rows)


@dataclass(frozen=True, slots=True)
class Reason:
    """A failure of a gate and a subject, with its worst case."""

    subject: str
    gate: str
    status: str
    count: str
    place: str  # of the table cell
    row: str  # run, case and seed of the worst case, for the script
    words: str
    smallest: Entry | None


def _reasons(page: Page) -> list[Reason]:
    """Return the failures, errors first."""
    small = {
        (entry.record.subject, entry.record.gate): entry
        for entry in page.smallest[::-1]
        if smallest.shrunk(entry.record)
    }
    reasons = []
    for subject, gate, status in sorted(page.worst, key=lambda key: (SHOWN_WORST_FIRST.index(key[2]), key)):
        _, case, seed, run, reason = page.worst[subject, gate, status]
        counts = page.counts[gate, subject]
        judged = sum(count for name, count in counts.items() if name not in NOT_JUDGED)
        count = f"{counts[status]} of {judged} {'case' if judged == 1 else 'cases'}"
        row = json.dumps([run, case, seed])
        first = small.get((subject, gate)) if status in FAILURES else None
        reasons.append(Reason(subject, gate, status, count, page.place(gate, subject), row, f"{case}: {reason}", first))
    return reasons


def _changed(changed: Changes) -> dict[str, object]:
    return {
        "since": changed.since,
        "when": changes.when(changed),
        "count": changes.count(changed),
        "settings": changes.settings(changed),
        "lines": [line.partition(": ")[::2] for line in changes.listed(changed)],
    }


def _calibrations(page: Page) -> list[tuple[str, calibration_plot.Plot]]:
    """Return the picture of each run that calibrated, with the run's file."""
    plots = [(run.name, calibration_plot.plot(run.calibrations)) for run in page.runs if run.calibrations]
    return [(name, picture) for name, picture in plots if picture]
