"""How far beyond its limit a verdict is: of many failures the worst one is told, of many mutants the mildest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from gates.results.records import EvidenceRecord, VerdictRecord

LOST = ("crashed", "raised", "shape", "timeout")  # causes of a failure that left no number


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
