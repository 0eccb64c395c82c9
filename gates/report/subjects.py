"""Count the ops of each subject by their grade."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gates.report.grades import ORDER, Grades, totals
from gates.report.labels import DEPARTS
from gates.results.records import SubjectRecord

LEFT = "not judged"
COLUMNS = (*ORDER, LEFT)
TITLES = {DEPARTS: "documented deviations"}  # of columns that are not called as their grade


@dataclass(frozen=True, slots=True)
class Standing:
    """How many ops a subject has of each grade, and how many of its cases ran."""

    subject: str
    ops: Mapping[str, int]
    ran: int
    cases: int


def standings(found: Grades) -> list[Standing]:
    """Return the counts of each subject, by name."""
    lines = []
    for subject in sorted(found.subjects):
        ran, cases, left = found.cases(subject)
        lines.append(Standing(subject, {**totals(found.grades(subject)), LEFT: left}, ran, cases))
    return lines


def columns(found: Iterable[Standing]) -> list[str]:
    """Return the grades that any op has, worst first."""
    present = {status for item in found for status, count in item.ops.items() if count}
    return [status for status in COLUMNS if status in present]


def versions(records: Iterable[SubjectRecord]) -> list[tuple[str, str]]:
    """Return the reported versions, with the subjects that report the same."""
    found: dict[str, list[str]] = defaultdict(list)
    for record in records:
        words = ", ".join(f"{name} {value}" for name, value in sorted(record.versions.items()))
        found[words].append(record.subject)
    return [(", ".join(names), words) for words, names in found.items()]
