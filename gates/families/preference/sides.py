"""Pairs of completions in a forward definition: which slots count, the reference, a row's number, and likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.arithmetic.forms import merged
from gates.arithmetic.functions import Value, detached, maximum, where
from gates.arithmetic.number import Number, constant
from gates.families.preference.inputs import prompts
from gates.families.program import Choices, Data, Inputs
from gates.families.rows import misread, tokens, total
from gates.model import Array


def counted(inputs: Inputs, choice: str) -> Array:
    """Return the slots that hold a completion's token, as the chosen mask says."""
    mask = np.asarray(inputs["mask"], bool)
    columns = np.arange(mask.shape[1])
    if choice == "prompt too":
        return np.asarray(mask | prompts(inputs))
    if choice in {"without last column", "without first column"}:
        dropped = mask.shape[1] - 1 if choice == "without last column" else 0
        return np.asarray(mask & (columns != dropped))
    return misread(mask, choice)


def either(first: Value, *others: Value) -> Value:
    """Return a number that a program may compute in several forms, differentiated like the first."""
    return merged(first, *others) if isinstance(first, Number) else first


class Sides:
    """The rows of both sides of every pair, and the choices that read them.

    Attributes:
        counts: the slots that count, (2P, T).
        lp: log-probs of the policy, the variable of the gradient.
        base: what is subtracted from them, or None.
        rows: the number of each row, (2P,): its log-ratio, summed or averaged over tokens.
        chosen: the choices.
    """

    def __init__(self, data: Data, chosen: Choices, variable: Value) -> None:
        self.data, self.chosen, self.lp = data, chosen, variable
        self.counts = counted(data.inputs, chosen["mask"])
        self.base = self._base()
        self.rows = self._added(self.lp)
        if self.base is not None:  # a sum of differences, or a difference of sums
            self.rows = either(self._added(self.lp - self.base), self.rows - self._added(self.base))

    def scalar(self, name: str) -> Value:
        """Return a chosen constant such as β, in the data's dtype or wider."""
        return held(self.data, self.chosen[name] or 0.0)

    def _base(self) -> Value | None:
        choice, even = self.chosen["reference"], (np.arange(len(self.counts)) % 2 == 0)[:, None]
        if choice == "own":
            return detached(self.lp)
        if choice == "none" or self.data.get("reference") is None:
            return None
        return REFERENCES[choice](self.data.lift(self.data["reference"]), even)

    def _added(self, values: Value) -> Value:
        rows = total(values, self.counts).reshape(-1)
        return rows if self.chosen["row"] == "sum" else rows / self.divisor.reshape(-1)

    @property
    def divisor(self) -> Array:
        """What a row's sum is divided by, (2P, 1)."""
        return DIVISORS[self.chosen["row"]](tokens(self.counts), self.counts)

    def shortfalls(self) -> Value:
        """Return for each row Σ max(0, reference − policy), (2P,)."""
        behind = -self.lp if self.base is None else self.base - self.lp
        return total(maximum(0.0, behind), self.counts).reshape(-1)

    def split(self, rows: Value) -> tuple[Value, Value]:
        """Return the chosen and the rejected ones of numbers of rows, (P,) each."""
        half = len(self.counts) // 2
        choice, gradient = self.chosen["sides"], self.chosen["gradient"]
        c, r = (rows[:half], rows[half:]) if choice == "halves" else (rows[0::2], rows[1::2])
        if choice == "next pair":
            r = r[np.roll(np.arange(half), -1)]
        if choice == "swapped":
            c, r = r, c
        return detached(c) if gradient == "rejected" else c, detached(r) if gradient == "chosen" else r

    def spread(self, by_row: Value) -> Value:
        """Return a gradient by the rows' numbers, (2P,), as one by their tokens' log-probs."""
        wide = by_row.reshape(-1, 1)
        return (wide if self.chosen["row"] == "sum" else wide / self.divisor) * self.counts


REFERENCES: Mapping[str, Callable[[Value, Array], Value]] = {
    "given": lambda ref, even: ref,  # noqa: ARG005
    "swapped": lambda ref, even: ref[np.arange(len(even)) ^ 1],
    "added": lambda ref, even: -ref,  # noqa: ARG005
    "chosen only": lambda ref, even: where(even, ref, 0.0),
    "rejected only": lambda ref, even: where(~even, ref, 0.0),
    "next token": lambda ref, even: ref[:, np.minimum(np.arange(1, ref.shape[1] + 1), ref.shape[1] - 1)],  # noqa: ARG005
}
DIVISORS: Mapping[str, Callable[[Array, Array], Array]] = {
    "sum": lambda n, counts: np.ones_like(n),  # noqa: ARG005
    "mean": lambda n, counts: n,  # noqa: ARG005
    "width": lambda n, counts: np.full_like(n, counts.shape[1]),
    "longest": lambda n, counts: np.full_like(n, n.max()),  # noqa: ARG005
    "root": lambda n, counts: np.sqrt(n),  # noqa: ARG005
    "chosen length": lambda n, counts: np.repeat(n[0::2], 2, axis=0),  # noqa: ARG005
    "both lengths": lambda n, counts: np.repeat(n[0::2] + n[1::2], 2, axis=0),  # noqa: ARG005
}


def held(data: Data, value: float) -> Value:
    """Return a constant as a program may have it: rounded to the dtype, or not."""
    if not data.bounded:
        return float(value)
    rounded = constant(value, data.lift(np.asarray(data["policy"])[:0]).dtype)
    return Number(rounded.value, rounded.dtype, abs(float(rounded.value) - value))


def likelihood(sides: Sides, choice: str) -> Value:
    """Return the mean −log π of a set of tokens, perhaps as the mean over rows of each row's mean or sum."""
    first, second = (0, 1) if sides.chosen["sides"] != "swapped" else (1, 0)
    side = {"both sides": None, "rejected tokens": second}.get(choice, first)
    counts = np.ones_like(sides.counts) if choice == "all slots" else sides.counts
    if choice in {"attended", "attended row means"}:
        counts = counts | prompts(sides.data.inputs)
    rows, halves = np.arange(len(counts)), len(counts) // 2
    of_side = rows // halves if sides.chosen["sides"] == "halves" else rows % 2
    picked = counts if side is None else counts & (of_side == side)[:, None]
    if choice in {"row means", "attended row means"}:
        return -(total(sides.lp, picked) / tokens(picked)).sum() / float(halves)
    sums = -where(picked, sides.lp, 0.0).sum()
    if choice == "sum":
        return sums
    return averaged(sums, float(halves) if choice == "row sums" else max(float(picked.sum()), 1.0))


def averaged(sums: Value, n: float) -> Value:
    """Return a sum over n; its gradient is divided by n, or multiplied by 1 / n."""
    mean = sums / n
    if not isinstance(mean, Number):
        return mean
    return Number(mean.value, mean.dtype, mean.error, mean.void, [(sums, lambda g: (g / n).plus_relative(1.0))])
