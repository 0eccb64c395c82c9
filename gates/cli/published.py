"""Decide which wrong verdicts the conformance page calls wrong: those that are off by an amount that matters."""

from __future__ import annotations

import re
from dataclasses import replace

from gates.model import Evidence, Verdict

SHARE = 1e-4  # of an ordinary value: what is off by less has lost digits, and is no other formula
ORDINARY = 1e-3  # the smallest ordinary value: the gradient of one token in a step of a thousand
NUMBERS = re.compile(r"got (\S+), want (\S+)$")


def published(verdict: Verdict) -> Verdict:
    """Return a wrong verdict as fragile if no claim that failed is off by more than a ten-thousandth of an ordinary value."""
    if verdict.status != "wrong":
        return verdict
    failed = [item for item in verdict.evidence if item.role == "claim" and not item.holds]
    return replace(verdict, status="fragile") if failed and all(_is_small(item) for item in failed) else verdict


def _is_small(evidence: Evidence) -> bool:
    numbers = NUMBERS.search(evidence.where)
    if numbers is None:
        return False
    got, want = map(float, numbers.groups())
    return abs(got - want) <= SHARE * max(abs(want), ORDINARY)
