"""Count the ops of each subject by their grade."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gates.report.grades import Grades, totals
from gates.report.labels import DEPARTS
from gates.report.statuses import BY_GRADE
from gates.results.records import SubjectRecord

LEFT = "not judged"
COLUMNS = (*BY_GRADE, LEFT)
TITLES = {DEPARTS: "documented deviations"}  # of columns that are not called as their grade


@dataclass(frozen=True, slots=True)
class Standing:
    """How many ops a subject has of each grade, and how many of its cases ran."""

    subject: str
    ops: Mapping[str, int]
    ran: int
    cases: int


def standings(grades: Grades) -> list[Standing]:
    """Return the counts of each subject, by name."""
    rows = []
    for subject in sorted(grades.subjects):
        ran, cases, left = grades.cases(subject)
        rows.append(Standing(subject, {**totals(grades.grades(subject)), LEFT: left}, ran, cases))
    return rows


def columns(rows: Iterable[Standing]) -> list[str]:
    """Return the grades that any op has, worst first."""
    present = {status for row in rows for status, count in row.ops.items() if count}
    return [status for status in COLUMNS if status in present]


def versions(records: Iterable[SubjectRecord]) -> list[tuple[str, str]]:
    """Return the reported versions, with the subjects that report the same."""
    subjects: dict[str, list[str]] = defaultdict(list)
    for record in records:
        version = ", ".join(f"{name} {value}" for name, value in sorted(record.versions.items()))
        subjects[version].append(record.subject)
    return [(", ".join(names), version) for version, names in subjects.items()]
