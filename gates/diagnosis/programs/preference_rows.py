"""Pairs of completions in a forward definition: which slots count, the reference, a row's number, and likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, detached, maximum, where
from gates.diagnosis.program import Choices, Data, Inputs
from gates.diagnosis.programs.rows import misread, tokens, total
from gates.model import Array
from reference.textbook.forms import merged
from reference.textbook.number import Number


def prompts(inputs: Inputs) -> Array:
    """Return the slots before a completion: those of its prompt, with left padding where no mask of attention is given."""
    mask = np.asarray(inputs["mask"], bool)
    if inputs.get("attention_mask") is not None:
        return np.asarray(np.asarray(inputs["attention_mask"], bool) & ~mask)
    return np.asarray(np.flip(np.logical_or.accumulate(np.flip(mask, axis=1), axis=1), axis=1) & ~mask)


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
        base: what is subtracted from them, 0 where nothing is.
        chosen: the choices.
    """

    def __init__(self, data: Data, chosen: Choices, variable: Value) -> None:
        self.data, self.chosen, self.lp = data, chosen, variable
        self.counts = counted(data.inputs, chosen["mask"])
        self.base = self._base()

    def scalar(self, name: str) -> Value:
        """Return a chosen constant such as β, in the data's dtype or wider."""
        return self.data.scalar(self.chosen[name], np.asarray(self.data["policy"]).dtype.name)

    def _base(self) -> Value:
        choice, even = self.chosen["reference"], (np.arange(len(self.counts)) % 2 == 0)[:, None]
        if choice == "own":
            return detached(self.lp)
        if choice == "none" or self.data.get("reference") is None:
            return detached(self.lp) * 0.0
        reference = self.data.lift(self.data["reference"])
        return REFERENCES[choice](reference, even)

    def rows(self) -> Value:
        """Return the number of each row, (2P,): its log-ratio, summed or averaged over tokens."""
        ratio = either(
            total(self.lp - self.base, self.counts), total(self.lp, self.counts) - total(self.base, self.counts)
        )
        return (ratio / self.divisor(self.chosen["row"])).reshape(-1)

    def shortfalls(self) -> Value:
        """Return for each row Σ max(0, reference − policy), (2P,)."""
        return total(maximum(0.0, self.base - self.lp), self.counts).reshape(-1)

    def divisor(self, choice: str) -> Array:
        """Return what a row's sum is divided by, (2P, 1)."""
        n = tokens(self.counts)
        return DIVISORS[choice](n, self.counts)

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


def likelihood(sides: Sides, choice: str) -> Value:
    """Return the mean −log π of a set of tokens, perhaps as the mean over rows of each row's mean or sum."""
    first, second = (0, 1) if sides.chosen["sides"] != "swapped" else (1, 0)
    side = {"both sides": None, "rejected tokens": second}.get(choice, first)
    counts = np.ones_like(sides.counts) if choice == "all slots" else sides.counts
    if choice in {"attended", "attended row means"}:
        counts = counts | prompts(sides.data.inputs)
    rows = np.arange(len(counts))
    halves = len(counts) // 2
    of_side = rows // halves if sides.chosen["sides"] == "halves" else rows % 2
    picked = counts if side is None else counts & (of_side == side)[:, None]
    if choice in {"row means", "attended row means"}:
        return -(total(sides.lp, picked) / tokens(picked)).sum() / float(halves)
    sums = -where(picked, sides.lp, 0.0).sum()
    return (
        sums if choice == "sum" else sums / (float(halves) if choice == "row sums" else max(float(picked.sum()), 1.0))
    )
