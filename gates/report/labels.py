"""The word that a reader is shown for a verdict."""

from __future__ import annotations

from gates.model import Verdict
from gates.report.records import VerdictRecord

DEPARTS = "departs"


def shown(verdict: Verdict | VerdictRecord) -> str:
    """Return the status; a failure that is the peer's documented other choice is a departure, which is no bug."""
    return DEPARTS if verdict.status == "fail" and verdict.cause == DEPARTS else verdict.status
