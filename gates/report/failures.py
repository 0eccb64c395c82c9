"""What did not hold in a run, by subject and gate: the worst case for all, for a gate often fails in dozens of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gates.report import smallest
from gates.report.labels import NOT_JUDGED, shown
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, EvidenceRecord, VerdictRecord

ORDER = ("error", "fail", "departs", "waived")
LOST = ("crashed", "raised", "shape", "timeout")  # causes of a failure that left no number


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


def severity(verdict: VerdictRecord) -> float:
    """Return how far beyond its limit the claim is that the verdict's reason tells, which is the first one broken."""
    return math.inf if verdict.cause in LOST else next(_beyond(verdict.evidence), math.inf)


def largest_effect(verdict: VerdictRecord) -> float:
    """Return how far beyond its limit the worst of all claims is."""
    return math.inf if verdict.cause in LOST else max(_beyond(verdict.evidence), default=math.inf)


def _beyond(evidence: Iterable[EvidenceRecord]) -> Iterator[float]:
    """Give how far beyond its limit each broken claim is: a share of the limit, or the count where the limit is 0."""
    for item in evidence:
        if item.role == "claim" and not item.holds:
            if item.relation == "<=" and math.isfinite(item.observed):
                yield item.observed / item.limit if item.limit > 0 else item.observed
            else:
                yield math.inf
