"""Group the failures of a run by subject and gate; the worst case stands for the others of its gate."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gates.model import NOT_JUDGED, Evidence, Verdict
from gates.report import smallest
from gates.report.labels import shown
from gates.report.statuses import SHOWN_WORST_FIRST
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, EvidenceRecord, VerdictRecord

LOST = ("crashed", "raised", "shape", "timeout")  # causes of a failure without a number


@dataclass(frozen=True, slots=True)
class Failure:
    """The verdicts of one status of a gate and a subject, the worst one first."""

    subject: str
    gate: str  # empty: the subject did not start, so all gates fail alike
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
        """Return how many of the cases that ran have this status: `3 of 12 cases`."""
        return f"{len(self.verdicts)} of {self.judged} {'case' if self.judged == 1 else 'cases'}"


def failures(run: Results) -> list[Failure]:
    """Return the failures without mutants, by status, subject and gate."""
    verdicts_of: dict[tuple[str, str, str], list[VerdictRecord]] = defaultdict(list)
    ran: Counter[tuple[str, str]] = Counter()
    for verdict in run.verdicts:
        if verdict.mutant is not None or verdict.status in NOT_JUDGED:
            continue
        gate = "" if verdict.cause == "start" else verdict.gate
        ran[verdict.subject, gate] += 1
        if verdict.status != "correct":
            verdicts_of[shown(verdict), verdict.subject, gate].append(verdict)
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
            verdicts_of.items(), key=lambda item: (SHOWN_WORST_FIRST.index(item[0][0]), item[0])
        )
    ]


def _worst_first(verdicts: Iterable[VerdictRecord]) -> list[VerdictRecord]:
    return sorted(verdicts, key=lambda v: (-severity(v), v.case, v.seed))


def severity(verdict: Verdict | VerdictRecord) -> float:
    """Return how far beyond its limit the first broken claim is, which is the one in the verdict's reason."""
    return math.inf if verdict.cause in LOST else next(_beyond(verdict.evidence), math.inf)


def largest_effect(verdict: VerdictRecord) -> float:
    """Return how far beyond its limit the worst claim is."""
    return math.inf if verdict.cause in LOST else max(_beyond(verdict.evidence), default=math.inf)


def _beyond(evidence: Iterable[Evidence | EvidenceRecord]) -> Iterator[float]:
    """Yield how far beyond its limit each broken claim is: a share of the limit, or the number itself if the limit is 0."""
    for item in evidence:
        if item.role == "claim" and not item.holds:
            if item.relation == "<=" and math.isfinite(item.observed):
                yield item.observed / item.limit if item.limit > 0 else item.observed
            else:
                yield math.inf
