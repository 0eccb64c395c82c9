"""Describe verdicts, evidence and exit codes in words."""

from __future__ import annotations

from gates.model import FAILURES, IN_FLOAT32, Verdict, measured
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
FAULT = 4


def meaning(verb: str, exit_code: int) -> str:
    """Return the meaning of a run's exit code."""
    return MEANING.get((verb, exit_code), "Nothing was measured" if exit_code == NOTHING else f"Exit code {exit_code}")


def shown(verdict: Verdict | VerdictRecord) -> str:
    """Return the status; a failure that the peer documents is a deviation, not a bug."""
    return DEPARTS if verdict.status in FAILURES and verdict.cause == DEPARTS else verdict.status


def note(verdict: Verdict | VerdictRecord) -> str:
    """Return "computes in float32" if only that explains an answer to float64 data, else nothing."""
    return IN_FLOAT32 if any(item.holds and IN_FLOAT32 in item.because for item in verdict.evidence) else ""


def sentence(item: EvidenceRecord) -> str:
    """Return recorded evidence in the sentence that the judge uses for every number."""
    return measured(item.quantity, item.observed, item.relation, item.limit, item.where, holds=item.holds)
