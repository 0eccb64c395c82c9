"""How each subject did, over its gates: what a reader wants to know first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gates.report.labels import NOT_JUDGED
from gates.report.plain import judged
from gates.results.records import SubjectRecord

COLUMNS = {  # by the worst status that a gate has
    "fail": "gates failing",
    "error": "gates in error",
    "departs": "gates departing as documented",
    "waived": "gates waived",
    "pass": "gates holding",
    "not judged": "gates not judged",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """How many gates a subject has of each worst status, and how many of its cases ran."""

    subject: str
    gates: Mapping[str, int]
    ran: int
    cases: int


def standings(cells: Mapping[tuple[str, str], Mapping[str, int]]) -> list[Standing]:
    """Return a line for each subject, of the verdicts counted by (gate, subject) and status."""
    gates: dict[str, Counter[str]] = defaultdict(Counter)
    ran: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    for (_, subject), counts in cells.items():
        worst, _ = judged(counts)
        gates[subject][worst if worst in COLUMNS else "not judged"] += 1
        cases[subject] += sum(counts.values())
        ran[subject] += sum(count for status, count in counts.items() if status not in NOT_JUDGED)
    return [Standing(subject, counts, ran[subject], cases[subject]) for subject, counts in sorted(gates.items())]


def columns(found: Iterable[Standing]) -> list[str]:
    """Return the statuses that any gate has, in order."""
    present = {status for item in found for status, count in item.gates.items() if count}
    return [status for status in COLUMNS if status in present]


def versions(records: Iterable[SubjectRecord]) -> list[tuple[str, str]]:
    """Return what subjects told of themselves, once for those that told the same."""
    found: dict[str, list[str]] = defaultdict(list)
    for record in records:
        told = ", ".join(f"{name} {value}" for name, value in sorted(record.versions.items()))
        found[told].append(record.subject)
    return [(", ".join(names), told) for told, names in found.items()]
