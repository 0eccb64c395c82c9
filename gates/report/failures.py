"""What did not hold in a run, by subject and gate: the worst case for all, for a gate often fails in dozens of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gates.report import smallest
from gates.report.labels import NOT_JUDGED, shown
from gates.report.severity import severity
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, VerdictRecord

ORDER = ("error", "fail", "departs", "waived")


@dataclass(frozen=True, slots=True)
class Failure:
    """The verdicts of one status that a gate gave a subject, the worst one first."""

    subject: str
    gate: str  # empty: the subject did not start, so all gates say the same
    status: str
    verdicts: tuple[VerdictRecord, ...]
    judged: int  # cases of the gate, or of all gates, that ran
    smallest: tuple[CounterexampleRecord, ...]

    @property
    def worst(self) -> VerdictRecord:
        """Return the verdict that is furthest beyond its limit."""
        return self.verdicts[0]

    @property
    def count(self) -> str:
        """Return how many cases it is of how many that ran: `3 of 12 cases`."""
        return f"{len(self.verdicts)} of {self.judged} {'case' if self.judged == 1 else 'cases'}"


def failures(run: Results) -> list[Failure]:
    """Return what did not hold of the subjects as they are, by status, subject and gate."""
    found: dict[tuple[str, str, str], list[VerdictRecord]] = defaultdict(list)
    ran: Counter[tuple[str, str]] = Counter()
    for verdict in run.verdicts:
        if verdict.mutant is not None or verdict.status in NOT_JUDGED:
            continue
        gate = "" if verdict.cause == "start" else verdict.gate
        ran[verdict.subject, gate] += 1
        if verdict.status != "pass":
            found[shown(verdict), verdict.subject, gate].append(verdict)
    small = smallest.by_gate(run.counterexamples)
    return [
        Failure(
            subject,
            gate,
            status,
            tuple(_worst_first(verdicts)),
            ran[subject, gate],
            tuple(small.get((subject, gate), ())),
        )
        for (status, subject, gate), verdicts in sorted(
            found.items(), key=lambda item: (ORDER.index(item[0][0]), item[0])
        )
    ]


def _worst_first(verdicts: Iterable[VerdictRecord]) -> list[VerdictRecord]:
    return sorted(verdicts, key=lambda v: (-severity(v), v.case, v.seed))
