"""Render recorded runs as one HTML file that loads nothing from a network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gates.model import FAILURES, NOT_JUDGED
from gates.report import calibration_plot, changes, diagnosis, smallest
from gates.report.baseline import Changes
from gates.report.grades import OpGrade
from gates.report.not_judged import condensed
from gates.report.page_data import Page, gather
from gates.report.plain import MOST_IDLE
from gates.report.sensitivity_plot import plot
from gates.report.smallest import Entry
from gates.report.statuses import BEST_FIRST, BY_GRADE, SHOWN_WORST_FIRST, SYMBOLS
from gates.report.subjects import TITLES, columns, standings, versions
from gates.results.escape import visible

FOLDER = Path(__file__).parent / "page"
MOST_REASONS = 300  # the matrix has the rest


def render_html(paths: Iterable[Path], changed: Changes | None = None) -> str:
    """Return the page of one or more files, and of what changed since a baseline.

    Text from subjects cannot become code: the template escapes it, the script sets it as text content, and the content
    security policy allows only this script, by its hash.
    """
    page = gather(paths)
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    style, script = ((FOLDER / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    shown = {
        "changed": _changed(changed) if changed else None,
        "standings": standings(page.grades),
        "mutants_recorded": any(grade.mutants for grade in page.grades.grades()),
        "reasons": _reasons(page),
        "plot": plot(page.sensitivities),
        "calibrations": _calibrations(page),
    }
    text = environment.get_template("page.html.j2").render(
        **shown,
        contents=_contents(page, shown),
        failing=_failing(page),
        page=page,
        style=Markup(style),  # noqa: S704  our own file
        style_hash=_hash(style),
        script=Markup(script),  # noqa: S704  our own file
        script_hash=_hash(script),
        data=Markup(page.as_json()),  # noqa: S704  `as_json` writes <, > and & as escapes
        counts=[(status, count) for status in BEST_FIRST if (count := page.counted()[status])],
        symbols=SYMBOLS,
        most=MOST_REASONS,
        smallest=[entry for entry in page.smallest if smallest.shrunk(entry.record)],
        not_shrunk=smallest.not_shrunk(entry.record for entry in page.smallest),
        columns=[(status, TITLES.get(status, status)) for status in columns(standings(page.grades))],
        holes=condensed(page.holes),
        missed=[mutant for run in page.runs for mutant in run.mutants if mutant.state != "caught"],
        versions=versions,
        fold=len(page.idle) > MOST_IDLE,
    )
    return visible(text)


def _contents(page: Page, shown: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return id and title of each section that the page has, in its order."""
    sections = [
        ("changes", "Changes", shown["changed"]),
        ("subjects", "How each subject did", shown["standings"]),
        ("grades", "Grades", page.grades.table),
        ("verdicts", "Verdicts", page.gates),
        ("reasons", "What did not hold", shown["reasons"]),
        ("counterexamples", "Smallest inputs", page.smallest),
        ("holes", "Not judged", page.holes),
        ("mutants", "Mutants", page.mutants),
        ("sensitivity", "Sensitivity", shown["plot"]),
        ("calibration-1", "Calibration", shown["calibrations"]),
        ("runs", "Runs", page.runs),
    ]
    return [(name, title) for name, title, content in sections if content]


def _failing(page: Page) -> list[tuple[OpGrade, str]]:
    """Return the grades that are not correct, worst first, each with what the op computes instead."""
    grades = [grade for grade in page.grades.grades() if grade.status != "correct"]
    grades.sort(key=lambda grade: BY_GRADE.index(grade.status))
    return [(grade, diagnosis.words(page.diagnoses.get((grade.subject, grade.op)))) for grade in grades]


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


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
