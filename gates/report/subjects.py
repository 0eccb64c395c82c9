"""Count the gates of each subject by their worst status."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gates.model import NOT_JUDGED
from gates.report.plain import judged
from gates.results.records import SubjectRecord

COLUMNS = {  # by the worst status of a gate
    "wrong": "gates wrong",
    "timeout": "gates out of time",
    "fragile": "gates fragile",
    "imprecise": "gates imprecise",
    "error": "gates in error",
    "departs": "gates with documented deviations",
    "waived": "gates waived",
    "correct": "gates correct",
    "not judged": "gates not judged",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """How many gates a subject has of each worst status, and how many of its cases ran."""

    subject: str
    gates: Mapping[str, int]
    ran: int
    cases: int


def standings(verdicts: Mapping[tuple[str, str], Mapping[str, int]]) -> list[Standing]:
    """Return the counts of each subject, given the verdicts counted by (gate, subject) and status."""
    gates: dict[str, Counter[str]] = defaultdict(Counter)
    ran: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    for (_, subject), counts in verdicts.items():
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
    """Return the reported versions, with the subjects that report the same."""
    found: dict[str, list[str]] = defaultdict(list)
    for record in records:
        words = ", ".join(f"{name} {value}" for name, value in sorted(record.versions.items()))
        found[words].append(record.subject)
    return [(", ".join(names), words) for words, names in found.items()]
