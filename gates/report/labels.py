"""The words that a reader is shown for a verdict and its evidence."""

from __future__ import annotations

from gates.model import Evidence, Verdict
from gates.results.records import EvidenceRecord, VerdictRecord

DEPARTS = "departs"
MEANING = {  # of a run's verb and exit code
    ("check", 0): "All that was judged held",
    ("check", 1): "Not all held",
    ("prove", 0): "Every mutant is caught",
    ("prove", 1): "Not proved",
    ("calibrate", 0): "No false positive",
    ("calibrate", 1): "Not in order",
}
NOTHING = 3
NOT_JUDGED = ("skipped", "unsupported")


def meaning(verb: str, exit_code: int) -> str:
    """Return what a run's exit code says of those that it judged."""
    return MEANING.get((verb, exit_code), "Nothing was measured" if exit_code == NOTHING else f"Exit code {exit_code}")


def shown(verdict: Verdict | VerdictRecord) -> str:
    """Return the status; a failure that is the peer's documented other choice is a departure, which is no bug."""
    return DEPARTS if verdict.status == "fail" and verdict.cause == DEPARTS else verdict.status


def sentence(item: EvidenceRecord) -> str:
    """Return recorded evidence as the one sentence in which every number of the judge is reported."""
    return Evidence(item.quantity, item.observed, item.relation, item.limit, item.because, item.where).sentence()
