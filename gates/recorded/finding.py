"""What is found of one quantity of a recorded step, and the comparison that decides it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gates.model import Array
from reference.textbook.number import FACTOR, UNIT, Number

Status = Literal["correct", "imprecise", "fragile", "wrong", "cannot tell", "unsupported", "finding"]
ORDER: tuple[Status, ...] = ("wrong", "fragile", "imprecise", "cannot tell", "correct", "finding", "unsupported")
DECISIVE = 1_000  # tokens: of more a loss alone does not show a shifted mask


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one quantity.

    Attributes:
        quantity: `group_advantages`, `policy_loss[grpo]`, `metric.kl`, …
        status: its grade; "cannot tell": the step does not decide; "finding": numbers without a definition to hold.
        reason: the numbers, or what is missing and the remedy.
        computes: what it computes instead, or what was identified.
        strength: how many known mistakes the step would have shown.
        numbers: for JSON.
    """

    quantity: str
    status: Status
    reason: str
    computes: str = ""
    strength: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Compared:
    """The worst error of an array that is compared piece by piece, in limits.

    Attributes:
        name: what was compared.
        worst: the largest error; inf where a number is not finite and should be.
        place: where it is, with both numbers.
        claimed: the elements that have a limit.
    """

    name: str
    worst: float = 0.0
    place: str = ""
    claimed: int = 0

    def add(self, got: Array, want: Array, limit: Array, start: int = 0) -> None:
        """Compare some elements; `start` is the row of the first."""
        a, b, room = (np.asarray(x, np.float64) for x in (got, want, limit))
        claimed = np.isfinite(room) & np.isfinite(b)
        with np.errstate(all="ignore"):
            error = np.where(a == b, 0.0, np.abs(a - b) / room)
        error = np.where(claimed, np.where(np.isfinite(error), error, np.inf), 0.0)
        self.claimed += int(claimed.sum())
        if error.size and (float(error.max()) > self.worst or not self.place):
            first = np.unravel_index(int(np.argmax(error)), error.shape)
            index = [int(i) + (start if axis == 0 else 0) for axis, i in enumerate(first)]
            self.worst = max(self.worst, float(error.max()))
            self.place = f"{f'at {index}: ' if index else ''}got {a[first]:.9g}, want {b[first]:.9g}"

    @property
    def holds(self) -> bool:
        """Whether every element lies within its limit."""
        return self.worst <= 1.0

    @property
    def words(self) -> str:
        """The error, the limit and the place; of what holds the error alone."""
        if self.holds:
            return f"{self.name} {self.worst:.2g} textbook limits off at most"
        size = "is not finite" if np.isinf(self.worst) else f"error is {self.worst:.3g} textbook limits, must be <= 1"
        return f"{self.name} {size} ({self.place})"


@dataclass(slots=True)
class Total:
    """A sum that is made piece by piece, and how far a program's sum in one go may lie from it.

    Within a piece the textbook's sum bounds every usual order; across pieces each addition may round once more by u times
    what was added before.
    """

    dtype: str
    value: float = 0.0
    limit: float = 0.0

    def add(self, value: float, limit: float, terms: int) -> None:
        """Add the sum of some terms."""
        self.limit += limit + 2.0 * FACTOR * UNIT[self.dtype] * terms * abs(self.value)
        self.value += value


def bounded(values: Array, limits: Array, dtype: str) -> Number:
    """Return numbers whose limits are known, to go on computing with."""
    finite = np.isfinite(limits)
    return Number(np.where(finite, values, 0.0), dtype, np.where(finite, limits, 0.0) / FACTOR, ~finite)


def worst_of(statuses: Iterable[Status]) -> Status:
    """Return the worst of some statuses."""
    return min(statuses, key=ORDER.index)
