"""Find the edited definition that reproduces a subject's outputs, within that definition's own limits.

ρ is the largest error over all designed inputs, in the candidate's limits. A candidate matches if ρ ≤ `MATCH`; it is named
if every other candidate has ρ ≥ `APART` or computes the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, plain
from gates.arithmetic.number import Number, gradient, number
from gates.diagnosis.factors import CERTAIN, CLOSE, NONE, Factor, Factors, constant, table
from gates.families.program import Choices, Data, Edit, Program, Sample
from gates.model import Array

MATCH, APART = 3.0, 30.0
MOST = 256  # candidates near by plain values whose limits are computed: 2 s
NEAR = 1e3  # limits of the asked definition: a candidate whose float64 values are farther off is not evaluated in full
ALIKE = 1e-2  # relative distance of quotients of plain values that may be one factor
SURE = 1e-3  # relative distance of plain values at which a candidate cannot match
ELSEWHERE = (1, 2, 3, 4)  # seeds of calls that no subject answers
FEW = 0.5  # largest share of void elements in a candidate that may match


@dataclass(frozen=True, slots=True)
class Candidate:
    """A set of simultaneous edits (none: as asked). `factor` multiplies every output."""

    edits: tuple[Edit, ...] = ()
    factor: Factor = NONE

    @property
    def words(self) -> str:
        """The text of its edits."""
        return " · ".join(edit.words for edit in self.edits) or "as asked"

    @property
    def sentence(self) -> str:
        """The text of its edits, each with what was asked."""
        return " · ".join(edit.sentence for edit in self.edits) or "as asked"

    def choices(self, asked: Choices) -> dict[str, Any]:
        """Return the choices of the edited definition."""
        choices = dict(asked)
        for edit in self.edits:
            choices.update(edit.changes)
        return choices


@dataclass(slots=True)
class Search:
    """Compares the candidates of one op with a subject's outputs."""

    program: Program
    samples: Sequence[Sample]
    asked: Choices
    _evaluated: dict[tuple[Any, int], dict[str, tuple[Array, Array]]] = field(default_factory=dict)
    _parts: dict[int, dict[Any, Value]] = field(default_factory=dict)
    _quick: dict[tuple[Any, int], dict[str, Array]] = field(default_factory=dict)
    _room: list[dict[str, Array]] = field(default_factory=list)
    _alike: list[tuple[Candidate, Candidate]] = field(default_factory=list)
    _elsewhere: list[Any] = field(default_factory=list)
    _table: Array | None = None
    _outputs: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that every sample has."""
        if not self._outputs:
            named = (name for name in self.program.outputs if all(name in sample.got for sample in self.samples))
            self._outputs = tuple(named)
        return self._outputs

    def evaluated(self, candidate: Candidate, index: int) -> dict[str, tuple[Array, Array]]:
        """Return value and limit of each output for one sample."""
        choices = candidate.choices(self.asked)
        key = (_key(choices), index)
        if key not in self._evaluated:
            self._evaluated[key] = evaluate(self.program, self.samples[index].inputs, choices)
        return self._evaluated[key]

    def distance(self, candidate: Candidate, *, outputs: Sequence[str] = (), enough: float = math.inf) -> float:
        """Return ρ, or a lower bound of it once that exceeds `enough`."""
        largest = 0.0
        for index, sample in enumerate(self.samples):
            evaluated, scale = self.evaluated(candidate, index), candidate.factor.of(sample.inputs)
            for output in outputs or self.outputs:
                value, limit = evaluated[output]
                largest = max(largest, _distance(sample.got[output], value * scale, limit * abs(scale)))
            if largest > enough:
                break
        return largest

    def same(self, first: Candidate, second: Candidate, outputs: Sequence[str] = ()) -> bool:
        """Whether two candidates agree on every sample, up to rounding."""
        for index, sample in enumerate(self.samples):
            a, b = self.evaluated(first, index), self.evaluated(second, index)
            p, q = first.factor.of(sample.inputs), second.factor.of(sample.inputs)
            for output in outputs or self.outputs:
                (x, limit), (y, other_limit) = a[output], b[output]
                if x.shape != y.shape or np.any(np.isnan(x) != np.isnan(y)):
                    return False
                room = np.where(np.isfinite(limit), limit, 0.0) + np.where(np.isfinite(other_limit), other_limit, 0.0)
                apart = difference(x * p, y * q)
                if not np.all((apart <= room) | np.isinf(limit) | np.isinf(other_limit)):
                    return False
        return True

    def note(self, first: Candidate, second: Candidate) -> None:
        """Keep a candidate that agrees with an earlier one on every sample."""
        self._alike.append((first, second))

    def coincides(self, candidate: Candidate) -> Candidate | None:
        """Return a candidate that agrees with another on every sample, but not on calls drawn anew; None without one."""
        twins = [twin for first, twin in self._alike if first is candidate]
        if twins and not self._elsewhere:
            for seed in ELSEWHERE:
                self._elsewhere.extend(self.program.inputs(self.samples[0].inputs, np.random.default_rng(seed)))
        return next((twin for twin in twins if not self._same_elsewhere(candidate, twin)), None)

    def _same_elsewhere(self, first: Candidate, second: Candidate) -> bool:
        """Whether plain values of two candidates agree up to a share that tells no sizes of ε apart."""
        for inputs in self._elsewhere:
            a, b = (values(self.program, inputs, each.choices(self.asked)) for each in (first, second))
            for output in set(a) & set(self.outputs):
                x, y = a[output] * first.factor.of(inputs), b[output] * second.factor.of(inputs)
                if x.shape != y.shape:
                    return False
                apart, size = difference(x, y), np.maximum(np.abs(x), np.abs(y))
                if np.any((apart > SURE * size) | (np.isinf(apart) & (x != y))):
                    return False
        return True

    def quick(self, candidate: Candidate, index: int) -> dict[str, Array]:
        """Return the values of the outputs that need no gradient, in plain float64."""
        inputs, parts = self.samples[index].inputs, self._parts.setdefault(index, {})
        return values(self.program, inputs, candidate.choices(self.asked), parts)

    def single(self, candidate: Candidate, index: int) -> dict[str, Array]:
        """Return the same as `quick`, kept for the next stage of a search."""
        key = (_key(candidate.choices(self.asked)), index)
        if key not in self._quick:
            self._quick[key] = self.quick(candidate, index)
        return self._quick[key]

    def possible(
        self, candidate: Candidate, outputs: Sequence[str] = (), *, within: float = NEAR, share: float = SURE
    ) -> bool:
        """Whether plain values leave it open that a candidate matches the outputs.

        Elements without a limit are not compared, nor outputs that plain values lack, such as gradients.

        Args:
            candidate: an edited definition.
            outputs: the outputs that are compared; all by default.
            within: the distance that is left open, in limits of what is asked.
            share: the relative distance that is left open.
        """
        room = self.room()
        for index, sample in enumerate(self.samples):
            scale = candidate.factor.of(sample.inputs)
            for output, value in self.single(candidate, index).items():
                if output not in (outputs or self.outputs):
                    continue
                got, limit = sample.got[output], self.evaluated(Candidate(), index)[output][1]
                if got.shape != value.shape:
                    return False
                allowed = room[index][output] * (within / NEAR)
                allowed = allowed if allowed.shape == value.shape else allowed.max(initial=0.0)
                with np.errstate(all="ignore"):
                    apart = difference(got, value * scale)
                    wide = np.maximum(allowed * max(abs(scale), 1.0), share * np.abs(value * scale))
                    open_ = (apart <= wide) | np.isnan(value) | (value == np.inf)
                if limit.shape == value.shape:
                    open_ = open_ | np.isinf(limit)
                if not open_.all():
                    return False
        return True

    def proportion(self, candidate: Candidate, index: int, outputs: Sequence[str]) -> float:
        """Return the quotient at the largest plain value of each output of a sample; inf if these differ.

        It is NaN where rounding may decide it or nothing is known.
        """
        quotient, sample = math.nan, self.samples[index]
        for output, value in self.single(candidate, index).items():
            if output not in (outputs or self.outputs) or sample.got[output].shape != value.shape or not value.size:
                continue
            finite = np.where(np.isfinite(value) & np.isfinite(sample.got[output]), np.abs(value), 0.0)
            if finite.max() > 10.0 * self.room()[index][output].max(initial=0.0):
                largest = np.unravel_index(np.argmax(finite), value.shape)
                of_output = float(sample.got[output][largest] / value[largest])
                if abs(of_output - quotient) > ALIKE * abs(quotient):
                    return math.inf
                quotient = of_output
        return quotient

    def quotients(self) -> Array:
        """Return the factors that are counts or settings of the calls, or quotients of these: one row for each."""
        if self._table is None:
            self._table = table([sample.inputs for sample in self.samples])
        return self._table

    def near(self, candidate: Candidate, room: Sequence[dict[str, Array]]) -> bool:
        """Whether a candidate's plain values are near enough to the outputs to make its limits worth computing."""
        return self.apart(candidate, room) <= 1.0

    def nearest(self, candidates: Iterable[Candidate], room: Sequence[dict[str, Array]]) -> list[Candidate]:
        """Return the candidates that are near, the nearest ones if there are many, in their order.

        Of a single call with one number thousands of pairs are near by chance; the right one is among the nearest.
        """
        near = [(apart, candidate) for candidate in candidates if (apart := self.apart(candidate, room)) <= 1.0]
        if len(near) > MOST:
            largest = sorted(apart for apart, _ in near)[MOST - 1]
            near = [(apart, candidate) for apart, candidate in near if apart <= largest]
        return [candidate for _, candidate in near]

    def apart(self, candidate: Candidate, room: Sequence[dict[str, Array]]) -> float:
        """Return the largest distance of a candidate's plain values from the outputs, in the room; inf beyond it.

        Two edits may not go together, such as another bound with a choice of the first one's; then it is inf.
        """
        largest = 0.0
        for index, sample in enumerate(self.samples):
            try:
                values_ = self.quick(candidate, index)
            except KeyError:  # a choice that a table of the other edit does not have
                return math.inf
            for output, value in values_.items():
                got, allowed = sample.got.get(output), room[index][output]
                if got is None:
                    continue
                if got.shape != value.shape:
                    return math.inf
                if allowed.shape != value.shape:
                    allowed = allowed.max(initial=0.0)
                apart = difference(got, value)
                wide = np.maximum(allowed, 1e-4 * np.where(np.isfinite(value), np.abs(value), 0.0))
                alike = (apart == 0.0) | (np.isnan(value) & np.isnan(got))
                if not np.all((apart <= wide) | alike):
                    return math.inf
                with np.errstate(all="ignore"):
                    largest = max(largest, float(np.where(alike | np.isinf(wide), 0.0, apart / wide).max(initial=0.0)))
        return largest

    def singles(self) -> Iterator[Candidate]:
        """Yield each single edit, conventions first."""
        yield from (Candidate((edit,)) for edit in self.program.edits(self.asked))

    def pairs(self) -> Iterator[Candidate]:
        """Yield each pair of edits of different choices."""
        edits = [edit for edit in self.program.edits(self.asked) if not edit.alone]
        for first, second in combinations(edits, 2):
            if not first.changes.keys() & second.changes.keys():
                yield Candidate((first, second))

    def room(self) -> list[dict[str, Array]]:
        """Return the allowed distance of plain values, for each sample and output."""
        if not self._room:
            every = [self.evaluated(Candidate(), index) for index in range(len(self.samples))]
            self._room = [
                {output: NEAR * np.where(np.isfinite(limit), limit, 0.0) for output, (_, limit) in evaluated.items()}
                for evaluated in every
            ]
        return self._room


def _key(choices: Choices) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(x)) for name, x in choices.items()))


def evaluate(program: Program, inputs: Any, choices: Choices) -> dict[str, tuple[Array, Array]]:
    """Return value and limit of each output of an edited definition, its gradient included."""
    data = Data(inputs, bounded=True)
    leaf = number(np.asarray(inputs[program.variable])) if program.variable else None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        outputs = dict(program.compute(data, choices, leaf))
        if leaf is not None:
            outputs["gradient"] = gradient(outputs["loss"], leaf)[0]
        return {name: (np.asarray(plain(x)), limits(x)) for name, x in outputs.items()}


def limits(x: Number) -> Array:
    """Return the limit of each element; 0 for an infinity that comes from the data and not from overflow."""
    return np.where(np.isinf(x.value) & ~x.void, 0.0, x.limit())


def difference(a: Array, b: Array) -> Array:
    """Return |a − b|, with 0 for equal infinities."""
    with np.errstate(all="ignore"):
        return np.where(a == b, 0.0, np.abs(a - b))


def values(program: Program, inputs: Any, choices: Choices, parts: dict[Any, Value] | None = None) -> dict[str, Array]:
    """Return the values of an edited definition, without its gradient; `parts` keeps terms for other choices."""
    data = Data(inputs, bounded=False, parts=parts)
    leaf = np.asarray(inputs[program.variable]).astype(np.float64) if program.variable else None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return {name: np.asarray(plain(x)) for name, x in program.compute(data, choices, leaf).items()}


def _distance(got: Array, value: Array, limit: Array) -> float:
    """Return the largest error in limits; inf if NaN stands on one side only, or too many limits are void."""
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
    """Return the candidates nearer than `APART`, nearest first, without those that agree with an earlier one."""
    matches: list[tuple[Candidate, float]] = []
    for candidate in candidates:
        if not search.possible(candidate, outputs):
            continue
        rho = search.distance(candidate, outputs=outputs, enough=APART)
        if rho >= APART:
            continue
        twin = next((other for other, _ in matches if search.same(candidate, other, outputs)), None)
        if twin is None:
            matches.append((candidate, rho))
        else:
            search.note(twin, candidate)
    return sorted(matches, key=lambda pair: pair[1])


def scaled(
    search: Search, candidate: Candidate, outputs: Sequence[str] = (), *, by: Factors = constant
) -> Iterator[Candidate]:
    """Yield the candidate with each factor that a program can have and that fits the first sample.

    Nothing is yielded if the candidate is 0 but for rounding on a sample, since any factor fits it; nor for an edit if
    only one number is known, since one of many edits and factors would fit any number.
    """
    output = (outputs or search.outputs)[-1]
    single = sum(sample.got[output].size for sample in search.samples) == 1
    if single and candidate.edits:
        return
    calls = [sample.inputs for sample in search.samples]
    if not _proportional(search, candidate, outputs, by):
        return
    observed, share = _factor(search, candidate, 0, output)
    if not math.isfinite(observed) or share > CERTAIN:
        return
    for factor in by(calls, observed, CLOSE if single else max(share, CLOSE), single=single):
        if all(_factor(search, candidate, index, output)[1] <= CERTAIN for index in range(1, len(calls))):
            yield Candidate(candidate.edits, factor)


def _proportional(search: Search, candidate: Candidate, outputs: Sequence[str], by: Factors) -> bool:
    """Whether plain values leave it open that a common factor is a constant, or a count or setting of the calls."""
    factors = np.full((1, len(search.samples)), math.nan) if by is constant else search.quotients()
    for index in range(len(search.samples)):
        observed = search.proportion(candidate, index, outputs)
        if math.isnan(observed):
            continue
        if math.isinf(observed):
            return False
        if by is constant and math.isnan(factors[0, index]):
            factors = np.full(factors.shape, observed)
        factors = factors[np.abs(factors[:, index] - observed) <= ALIKE * abs(observed)]
        if not factors.size:
            return False
    return True


def _factor(search: Search, candidate: Candidate, index: int, output: str) -> tuple[float, float]:
    """Return the quotient at the largest value of a sample, and its relative rounding error; inf if there is none."""
    (value, limit), got = search.evaluated(candidate, index)[output], search.samples[index].got[output]
    if got.shape != value.shape:
        return math.nan, math.inf
    certain = np.isfinite(value) & np.isfinite(got) & np.isfinite(limit) & (value != 0.0)
    if not certain.any():
        return math.nan, math.inf if limit.any() else 0.0
    largest = np.unravel_index(np.argmax(np.where(certain, np.abs(value), 0.0)), value.shape)
    return float(got[largest] / value[largest]), MATCH * float(limit[largest] / abs(value[largest]))
