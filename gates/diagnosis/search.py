"""Find the edited definition that gives what a subject returned, within that definition's own limits.

ρ is the largest error over all designed inputs, in the candidate's limits. A candidate matches with ρ ≤ `MATCH`; it is named
if every other one has ρ ≥ `APART` on some input, or computes the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from gates.arithmetic.functions import plain
from gates.arithmetic.number import Number, gradient, number
from gates.families.program import Choices, Data, Edit, Program, Sample
from gates.model import Array

MATCH, APART = 3.0, 30.0
NEAR = 1e3  # of the asked definition's limits: what a candidate in float64 may be off and still be tried in full
FEW = 0.5  # of the elements: a candidate that is void on more of them says nothing


@dataclass(frozen=True, slots=True)
class Candidate:
    """Edits that are made at once; none: as asked. `scale` multiplies every output."""

    edits: tuple[Edit, ...] = ()
    scale: float = 1.0

    @property
    def words(self) -> str:
        """What it computes."""
        return " · ".join(edit.words for edit in self.edits) or "as asked"

    @property
    def sentence(self) -> str:
        """What it computes, and what was asked."""
        return " · ".join(edit.sentence for edit in self.edits) or "as asked"

    def choices(self, asked: Choices) -> dict[str, Any]:
        """Return the choices of the edited definition."""
        found = dict(asked)
        for edit in self.edits:
            found.update(edit.changes)
        return found


@dataclass(slots=True)
class Search:
    """The candidates of one op against what a subject returned."""

    program: Program
    samples: Sequence[Sample]
    asked: Choices
    _known: dict[tuple[Any, int], dict[str, tuple[Array, Array]]] = field(default_factory=dict)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that every sample has."""
        return tuple(name for name in self.program.outputs if all(name in sample.got for sample in self.samples))

    def evaluated(self, candidate: Candidate, index: int) -> dict[str, tuple[Array, Array]]:
        """Return values and limits of each output for one sample."""
        choices = candidate.choices(self.asked)
        key = (tuple(sorted((name, repr(x)) for name, x in choices.items())), index)
        if key not in self._known:
            self._known[key] = evaluate(self.program, self.samples[index].inputs, choices)
        return self._known[key]

    def distance(self, candidate: Candidate, *, outputs: Sequence[str] = (), enough: float = math.inf) -> float:
        """Return ρ, or a number above `enough` that it is not below."""
        largest = 0.0
        for index, sample in enumerate(self.samples):
            found = self.evaluated(candidate, index)
            for output in outputs or self.outputs:
                value, limit = found[output]
                largest = max(
                    largest, _distance(sample.got[output], value * candidate.scale, limit * abs(candidate.scale))
                )
            if largest > enough:
                break
        return largest

    def same(self, first: Candidate, second: Candidate, outputs: Sequence[str] = ()) -> bool:
        """Whether two candidates compute the same on every sample, up to rounding."""
        for index in range(len(self.samples)):
            a, b = self.evaluated(first, index), self.evaluated(second, index)
            for output in outputs or self.outputs:
                (x, limit), (y, other) = a[output], b[output]
                if x.shape != y.shape or np.any(np.isnan(x) != np.isnan(y)):
                    return False
                room = np.where(np.isfinite(limit), limit, 0.0) + np.where(np.isfinite(other), other, 0.0)
                apart = difference(x * first.scale, y * second.scale)
                if not np.all((apart <= room) | np.isinf(limit) | np.isinf(other)):
                    return False
        return True

    def quick(self, candidate: Candidate, index: int) -> dict[str, Array]:
        """Return the values of the outputs that need no gradient, in plain float64."""
        inputs = self.samples[index].inputs
        return values(self.program, inputs, candidate.choices(self.asked))

    def near(self, candidate: Candidate, room: Sequence[dict[str, Array]]) -> bool:
        """Whether plain values lie so near to what was returned that the candidate is worth its limits."""
        for index, sample in enumerate(self.samples):
            for output, value in self.quick(candidate, index).items():
                got, allowed = sample.got.get(output), room[index][output]
                if got is None:
                    continue
                if got.shape != value.shape:
                    return False
                if allowed.shape != value.shape:
                    allowed = allowed.max(initial=0.0)
                apart = difference(got, value)
                wide = np.maximum(allowed, 1e-4 * np.where(np.isfinite(value), np.abs(value), 0.0))
                if not np.all((apart <= wide) | (np.isnan(value) & np.isnan(got))):
                    return False
        return True

    def singles(self) -> Iterator[Candidate]:
        """Yield one edit at a time, conventions first."""
        yield from (Candidate((edit,)) for edit in self.program.edits(self.asked))

    def pairs(self) -> Iterator[Candidate]:
        """Yield two edits at a time, of different choices."""
        edits = list(self.program.edits(self.asked))
        for first, second in combinations(edits, 2):
            if not first.changes.keys() & second.changes.keys():
                yield Candidate((first, second))

    def room(self) -> list[dict[str, Array]]:
        """Return how far plain values may be off, for each sample and output."""
        base = Candidate()
        return [
            {
                output: NEAR * np.where(np.isfinite(limit), limit, 0.0)
                for output, (_, limit) in self.evaluated(base, index).items()
            }
            for index in range(len(self.samples))
        ]


def evaluate(program: Program, inputs: Any, choices: Choices) -> dict[str, tuple[Array, Array]]:
    """Return values and limits of an edited definition."""
    data = Data(inputs, bounded=True)
    leaf = number(np.asarray(inputs[program.variable])) if program.variable else None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = dict(program.compute(data, choices, leaf))
        if leaf is not None:
            found["gradient"] = gradient(found["loss"], leaf)[0]
        return {name: (np.asarray(plain(x)), limits(x)) for name, x in found.items()}


def limits(x: Number) -> Array:
    """Return how far each element may lie from an exact result; an infinity that is no overflow, but data, not at all."""
    return np.where(np.isinf(x.value) & ~x.void, 0.0, x.limit())


def difference(a: Array, b: Array) -> Array:
    """Return |a − b|, 0 between equal infinities."""
    with np.errstate(all="ignore"):
        return np.where(a == b, 0.0, np.abs(a - b))


def values(program: Program, inputs: Any, choices: Choices) -> dict[str, Array]:
    """Return the values of an edited definition, without its gradient."""
    data = Data(inputs, bounded=False)
    leaf = np.asarray(inputs[program.variable]).astype(np.float64) if program.variable else None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return {name: np.asarray(plain(x)) for name, x in program.compute(data, choices, leaf).items()}


def _distance(got: Array, value: Array, limit: Array) -> float:
    """Return the largest error in limits; inf where one is NaN and the other is not, or most limits are void."""
    if got.shape != value.shape:
        return math.inf
    void = np.isinf(limit) & ~np.isnan(value)
    if void.size and void.mean() > FEW:
        return math.inf
    apart = difference(got, value)
    with np.errstate(all="ignore"):
        ratio = np.where(apart == 0.0, 0.0, apart / limit)
    ratio = np.where(np.isnan(got) & np.isnan(value), 0.0, np.where(np.isnan(ratio), np.inf, ratio))
    ratio = np.where(void, 0.0, ratio)
    return float(ratio.max(initial=0.0))


def first_matches(
    search: Search, candidates: Iterable[Candidate], outputs: Sequence[str] = ()
) -> list[tuple[Candidate, float]]:
    """Return the candidates nearer than `APART`, nearest first; those that compute the same as an earlier one are left out."""
    found: list[tuple[Candidate, float]] = []
    for candidate in candidates:
        rho = search.distance(candidate, outputs=outputs, enough=APART)
        if rho < APART and not any(search.same(candidate, other, outputs) for other, _ in found):
            found.append((candidate, rho))
    return sorted(found, key=lambda pair: pair[1])


def scaled(search: Search, candidate: Candidate) -> Candidate | None:
    """Return the candidate times the one factor that fits the first sample, or None where none does."""
    sample, found = search.samples[0], search.evaluated(candidate, 0)
    output = search.outputs[-1]
    value, got = found[output][0], sample.got[output]
    if got.shape != value.shape:
        return None
    certain = np.isfinite(value) & np.isfinite(got) & (value != 0.0)
    if not certain.any():
        return None
    largest = np.argmax(np.where(certain, np.abs(value), 0.0))
    factor = float(got.reshape(-1)[largest] / value.reshape(-1)[largest])
    return Candidate(candidate.edits, factor) if factor not in {0.0, 1.0} and math.isfinite(factor) else None
