"""Pairs of completions in a forward definition: masks, reference, the number of a row, and likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.arithmetic.forms import merged
from gates.arithmetic.functions import Value, detached, exp, maximum, where
from gates.arithmetic.number import Number, constant
from gates.families.preference.inputs import prompts
from gates.families.program import Choices, Data, Inputs
from gates.families.rows import misread, tokens, total
from gates.model import Array


def counted(inputs: Inputs, choice: str) -> Array:
    """Return the slots that count, by the chosen mask."""
    mask = np.asarray(inputs["mask"], bool)
    columns = np.arange(mask.shape[1])
    if choice == "prompt too":
        return np.asarray(mask | prompts(inputs))
    if choice in {"without last column", "without first column"}:
        dropped = mask.shape[1] - 1 if choice == "without last column" else 0
        return np.asarray(mask & (columns != dropped))
    return misread(mask, choice)


def either(first: Value, *others: Value) -> Value:
    """Return a number with the widest bound of several forms; its gradient is that of the first."""
    return merged(first, *others) if isinstance(first, Number) else first


class Sides:
    """The rows of both sides of every pair, with the choices of a program.

    Attributes:
        counts: the slots that count, (2P, T).
        lp: log-probs of the policy, the variable of the gradient.
        base: the log-probs that are subtracted, or None.
        rows: the number of each row, (2P,): its log-ratio, summed or averaged over tokens.
        chosen: the choices.
    """

    def __init__(self, data: Data, chosen: Choices, variable: Value) -> None:
        self.data, self.chosen, self.lp = data, chosen, variable
        self.counts = counted(data.inputs, chosen["mask"])
        self.base = self._base()
        lp, base = (None if x is None else QUANTITIES[chosen["quantity"]](x) for x in (self.lp, self.base))
        self.rows = self._added(lp)
        if base is not None:  # the sum of differences or the difference of sums
            self.rows = either(self._added(lp - base), self.rows - self._added(base))
        if chosen["reference"] == "exchanged":
            self.rows = -self.rows

    def scalar(self, name: str) -> Value:
        """Return a chosen constant such as β, which a program may keep in a wider dtype."""
        return rounded_constant(self.data, self.chosen[name] or 0.0)

    def _base(self) -> Value | None:
        choice, even = self.chosen["reference"], (np.arange(len(self.counts)) % 2 == 0)[:, None]
        if choice == "own":
            return detached(self.lp)
        if choice == "none" or self.data.get("reference") is None:
            return None
        reference = self.data.lift(self.data["reference"])
        if choice in {"averaged", "summed"}:
            n = tokens(self.counts)
            return reference / n if choice == "averaged" else reference * n
        if choice == "batch mean":
            return reference * 0.0 + where(self.counts, reference, 0.0).sum() / float(self.counts.sum())
        return reference / self.scalar("beta") if choice == "without β" else REFERENCES[choice](reference, even)

    def _added(self, values: Value) -> Value:
        rows = total(values, self.counts).reshape(-1)
        return rows if self.chosen["row"] == "sum" else rows / self.divisor.reshape(-1)

    @property
    def divisor(self) -> Array:
        """The divisor of a row's sum, (2P, 1)."""
        eps: float = self.chosen["count_eps"]
        return DIVISORS[self.chosen["row"]](tokens(self.counts), self.counts) + eps

    def shortfalls(self) -> Value:
        """Return Σ max(0, reference − policy) of each row, (2P,)."""
        behind = -self.lp if self.base is None else self.base - self.lp
        return total(maximum(0.0, behind), self.counts).reshape(-1)

    def split(self, rows: Value) -> tuple[Value, Value]:
        """Split numbers of rows into chosen and rejected, (P,) each."""
        half = len(self.counts) // 2
        choice, gradient = self.chosen["sides"], self.chosen["gradient"]
        c, r = (rows[:half], rows[half:]) if choice == "halves" else (rows[0::2], rows[1::2])
        if choice == "next pair":
            r = r[np.roll(np.arange(half), -1)]
        if choice == "first rejected":
            r = r[np.zeros(half, np.int64)]
        if choice == "means":
            c, r = (side * 0.0 + side.mean() for side in (c, r))
        if choice == "swapped":
            c, r = r, c
        return detached(c) if gradient == "rejected" else c, detached(r) if gradient == "chosen" else r

    def spread(self, by_row: Value) -> Value:
        """Return the gradient by tokens' log-probs, given that by the rows' numbers, (2P,)."""
        wide = by_row.reshape(-1, 1)
        return (wide if self.chosen["row"] == "sum" else wide / self.divisor) * self.counts


REFERENCES: Mapping[str, Callable[[Value, Array], Value]] = {
    "given": lambda ref, even: ref,  # noqa: ARG005
    "swapped": lambda ref, even: ref[np.arange(len(even)) ^ 1],
    "added": lambda ref, even: -ref,  # noqa: ARG005
    "next pair": lambda ref, even: ref[np.roll(np.arange(len(even)), -2)],
    "twice": lambda ref, even: ref * 2.0,  # noqa: ARG005
    "half": lambda ref, even: ref * 0.5,  # noqa: ARG005
    "chosen only": lambda ref, even: where(even, ref, 0.0),
    "rejected only": lambda ref, even: where(~even, ref, 0.0),
    "exchanged": lambda ref, even: ref,  # noqa: ARG005
    "next row": lambda ref, even: ref[np.roll(np.arange(len(even)), -1)],
    "rows in halves": lambda ref, even: ref[np.arange(len(even)).reshape(2, -1).T.reshape(-1)],
    "previous token": lambda ref, even: ref[:, np.maximum(np.arange(ref.shape[1]) - 1, 0)],  # noqa: ARG005
    "next token": lambda ref, even: ref[:, np.minimum(np.arange(1, ref.shape[1] + 1), ref.shape[1] - 1)],  # noqa: ARG005
}
QUANTITIES: Mapping[str, Callable[[Value], Value]] = {  # of a token, that a row adds
    "log-probs": lambda lp: lp,
    "probabilities": exp,
    "half": lambda lp: lp * 0.5,
}
DIVISORS: Mapping[str, Callable[[Array, Array], Array]] = {
    "sum": lambda n, counts: np.ones_like(n),  # noqa: ARG005
    "mean": lambda n, counts: n,  # noqa: ARG005
    "width": lambda n, counts: np.full_like(n, counts.shape[1]),
    "longest": lambda n, counts: np.full_like(n, n.max()),  # noqa: ARG005
    "root": lambda n, counts: np.sqrt(n),  # noqa: ARG005
    "chosen length": lambda n, counts: np.repeat(n[0::2], 2, axis=0),  # noqa: ARG005
    "rejected length": lambda n, counts: np.repeat(n[1::2], 2, axis=0),  # noqa: ARG005
    "chosen averaged": lambda n, counts: np.where(np.arange(len(n))[:, None] % 2 == 0, n, 1.0),  # noqa: ARG005
    "rejected averaged": lambda n, counts: np.where(np.arange(len(n))[:, None] % 2 == 1, n, 1.0),  # noqa: ARG005
    "mean length": lambda n, counts: np.full_like(n, n.mean()),  # noqa: ARG005
    "both lengths": lambda n, counts: np.repeat(n[0::2] + n[1::2], 2, axis=0),  # noqa: ARG005
}


def rounded_constant(data: Data, value: float) -> Value:
    """Return a constant that a program may or may not round to the dtype."""
    if not data.bounded:
        return float(value)
    rounded = constant(value, data.lift(np.asarray(data["policy"])[:0]).dtype)
    return Number(rounded.value, rounded.dtype, rounded.error + abs(float(rounded.value) - value))


def likelihood(sides: Sides, choice: str) -> Value:
    """Return the mean −log π over a set of tokens, or the mean over rows of row means or sums."""
    first, second = (0, 1) if sides.chosen["sides"] != "swapped" else (1, 0)
    side = {"both sides": None, "rejected tokens": second}.get(choice, first)
    counts = np.ones_like(sides.counts) if choice == "all slots" else sides.counts
    if choice in {"attended", "attended row means"}:
        counts = counts | prompts(sides.data.inputs)
    rows, halves = np.arange(len(counts)), len(counts) // 2
    of_side = rows // halves if sides.chosen["sides"] == "halves" else rows % 2
    picked = counts if side is None else counts & (of_side == side)[:, None]
    if choice in {"row means", "attended row means"}:
        return -(total(sides.lp, picked) / (tokens(picked) + sides.chosen["nll_eps"])).sum() / float(halves)
    sums = -where(picked, sides.lp, 0.0).sum()
    if choice == "sum":
        return sums
    every = max(float(picked.sum()), 1.0) + sides.chosen["nll_eps"]
    return averaged(sums, float(halves) if choice == "row sums" else every)


def averaged(sums: Value, n: float) -> Value:
    """Return a sum over n, whose gradient may be divided by n or multiplied by 1 / n."""
    mean = sums / n
    if not isinstance(mean, Number):
        return mean
    return Number(mean.value, mean.dtype, mean.error, mean.void, [(sums, lambda g: (g / n).plus_relative(1.0))])
