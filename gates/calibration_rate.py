"""How large a false-alarm rate may be, after so many alarms in so many seeds."""

from __future__ import annotations

import math

CONFIDENCE = 0.95


def upper_bound(alarms: int, seeds: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact one-sided upper bound of a rate (Clopper and Pearson, 1934).

    It is the rate p at which so few alarms or fewer have a chance of 1 − confidence. Without any alarm that is
    1 − (1 − confidence)^(1/n), at 95% just below the rule of three, 3/n.

    Raises:
        ValueError: if there were no seeds, or more alarms than seeds.
    """
    if not 0 <= alarms <= seeds or seeds < 1:
        raise ValueError(f"{alarms} alarms in {seeds} seeds: there must be seeds, and no more alarms than seeds")
    if alarms == seeds:
        return 1.0
    if alarms == 0:
        return float(-math.expm1(math.log1p(-confidence) / seeds))
    low, high = alarms / seeds, 1.0
    for _ in range(60):  # to the last bit of a float64
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(alarms, seeds, middle) > 1 - confidence else (low, middle)
    return high


def _at_most(alarms: int, seeds: int, rate: float) -> float:
    """Return the chance of at most so many alarms."""
    if rate >= 1.0:
        return 0.0
    terms = (
        math.lgamma(seeds + 1)
        - math.lgamma(k + 1)
        - math.lgamma(seeds - k + 1)
        + k * math.log(rate)
        + (seeds - k) * math.log1p(-rate)
        for k in range(alarms + 1)
    )
    return math.fsum(map(math.exp, terms))
