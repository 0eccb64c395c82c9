"""The verdict on one quantity of a recorded step, and the comparison behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gates.arithmetic.number import FACTOR, UNIT, Number
from gates.model import COSTLY, Array

Status = Literal["correct", "imprecise", "fragile", "differs", "wrong", "cannot tell", "unsupported", "finding"]
ORDER: tuple[str, ...] = (*COSTLY, "cannot tell", "correct", "finding", "unsupported")
DECISIVE = 1_000  # tokens: with more, a loss alone does not reveal a shifted mask


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one quantity.

    Attributes:
        quantity: `group_advantages`, `policy_loss[grpo]`, `metric.kl`, …
        status: its grade; "cannot tell": the step does not decide; "finding": numbers without a definition.
        reason: the numbers, or the missing item and the remedy.
        computes: the formula that was identified.
        strength: how many known mistakes the step would reveal.
        numbers: for JSON.
        declare: what to write if another choice is meant: "write `aggregation` 'constant' if it is meant".
    """

    quantity: str
    status: Status
    reason: str
    computes: str = ""
    strength: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    declare: str = ""


@dataclass(slots=True)
class Compared:
    """The worst error, in limits, of an array that is compared piece by piece.

    Attributes:
        name: of the array.
        worst: the largest error; inf if a number is unexpectedly not finite.
        location: its index, and both numbers.
        claimed: the number of elements with a limit.
        worst_finite: the largest error of a finite element.
        symptom: what an element with an infinite error is: "not finite", or not the number that it must be exactly.
    """

    name: str
    worst: float = 0.0
    location: str = ""
    claimed: int = 0
    worst_finite: float = 0.0
    symptom: str = ""

    def add(self, got: Array, want: Array, limit: Array, start: int = 0) -> None:
        """Compare some elements; `start` is the row of the first."""
        a, b, room = (np.asarray(x, np.float64) for x in (got, want, limit))
        claimed = np.isfinite(room) & np.isfinite(b)
        with np.errstate(all="ignore"):
            error = np.where(a == b, 0.0, np.abs(a - b) / room)
        error = np.where(claimed, np.where(np.isfinite(error), error, np.inf), 0.0)
        self.claimed += int(claimed.sum())
        self.worst_finite = max(self.worst_finite, float(error[np.isfinite(a)].max(initial=0.0)))
        if error.size and (float(error.max()) > self.worst or not self.location):
            first = np.unravel_index(int(np.argmax(error)), error.shape)
            index = [int(i) + (start if axis == 0 else 0) for axis, i in enumerate(first)]
            self.worst = max(self.worst, float(error.max()))
            self.symptom = f"not {b[first]:.9g}" if np.isfinite(a[first]) else "not finite"
            self.location = f"{f'at {index}: ' if index else ''}got {a[first]:.9g}, want {b[first]:.9g}"

    @property
    def holds(self) -> bool:
        """Whether every element lies within its limit."""
        return self.worst <= 1.0

    @property
    def summary(self) -> str:
        """The error; if it exceeds the limit, also its location."""
        if self.holds:
            return f"{self.name} {self.worst:.2g} textbook limits off at most"
        size = (
            f"is {self.symptom}" if np.isinf(self.worst) else f"error is {self.worst:.3g} textbook limits, must be <= 1"
        )
        return f"{self.name} {size} ({self.location})"

    @property
    def numbers(self) -> dict[str, Any]:
        """The comparison as JSON fields."""
        return {"error_in_limits": self.worst, "at": self.location, "elements": self.claimed}


@dataclass(slots=True)
class Total:
    """A sum over pieces, and how far a program's single sum may lie from it.

    Within a piece the textbook limit bounds every usual order; across pieces each addition may round once more, by u times
    the sum so far.
    """

    dtype: str
    value: float = 0.0
    limit: float = 0.0

    def add(self, value: float, limit: float, terms: int) -> None:
        """Add the sum of some terms."""
        self.limit += limit + 2.0 * FACTOR * UNIT[self.dtype] * terms * abs(self.value)
        self.value += value


def bounded(values: Array, limits: Array, dtype: str) -> Number:
    """Return values and their limits as a `Number` for further arithmetic."""
    finite = np.isfinite(limits)
    return Number(np.where(finite, values, 0.0), dtype, np.where(finite, limits, 0.0) / FACTOR, ~finite)
