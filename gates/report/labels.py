"""The words that a reader is shown for a verdict and its evidence."""

from __future__ import annotations

from gates.model import Evidence, Verdict
from gates.report.records import EvidenceRecord, VerdictRecord

DEPARTS = "departs"


def shown(verdict: Verdict | VerdictRecord) -> str:
    """Return the status; a failure that is the peer's documented other choice is a departure, which is no bug."""
    return DEPARTS if verdict.status == "fail" and verdict.cause == DEPARTS else verdict.status


def sentence(item: EvidenceRecord) -> str:
    """Return recorded evidence as the one sentence in which every number of the judge is reported."""
    return Evidence(item.quantity, item.observed, item.relation, item.limit, item.because, item.where).sentence()
