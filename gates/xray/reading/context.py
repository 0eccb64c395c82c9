"""What the readings of one update share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gates.model import Array
from gates.xray.reading import inverse, mistaken, own, powers, reordered, repeated, rounded, shapes
from gates.xray.reading.reordered import Reordered
from gates.xray.reading.shapes import Shape
from gates.xray.reading.tokens import Tokens, masked, tokens_of
from gates.xray.recording import Recording
from gates.xray.step import Step


@dataclass(frozen=True)
class Context:
    """An update with what came before it.

    Attributes:
        recording: of the script.
        step: the update.
        earlier: updates before it.
        tokens: that decide.
        fitting: the simplest shapes that agree with the coefficients; several if they cannot be told apart.
        mistaken: whether these divide by old log-probs that are not the old policy's, or by the new ones.
        masked: columns that they fit without: a mask leaves them out, since a KL would show there.
        reordered: the KL to the log-probs of other rows, where there is one.
        factors: of each row, by which its forward pass counts several times; empty where passes count alike.
    """

    recording: Recording
    step: Step
    earlier: tuple[Context, ...]
    tokens: Tokens
    fitting: tuple[Shape, ...]
    mistaken: bool = False
    masked: frozenset[int] = frozenset()
    reordered: Reordered | None = None
    factors: Array = field(default_factory=lambda: np.ones(0))

    @property
    def shape(self) -> Shape:
        """The simplest shape that fits, else that of equal tokens."""
        return self.fitting[0] if self.fitting else shapes.equal(self.tokens)

    @property
    def only_copies(self) -> bool:
        """Whether each row that decides equals another one, so that only the sum of their coefficients shows."""
        return all(len(self.step.alike[row]) > 1 for row in self.tokens.rows)

    @cached_property
    def weights(self) -> Array:
        """The weight of each row, without the KL where there is one; 0 within its error, NaN without a token of its own."""
        if not self.fitting or self.shape.form is None:
            return self.step.weights
        weights = np.full(self.rows, np.nan)
        for first, weight in self.shape.weights.items():
            error = max(self.shape.errors[first], self.step.fit.rounding * abs(weight))
            weights[list(self.step.alike[first])] = weight if abs(weight) > self.tokens.quantile * error else 0.0
        return weights

    @cached_property
    def trained_before(self) -> frozenset[str]:
        """The keys of tokens that trained in an earlier update: where they do not now, a bound switched them off."""
        keys: set[str] = set()
        for before in self.earlier:
            columns = np.arange(len(before.step.update.kinds))
            trains = np.isfinite(before.step.fit.coefficients) & ~before.step.fit.zero(columns)
            keys |= {before.step.update.keys[int(column)] for column in columns[trains]}
        return frozenset(keys - {""})

    @property
    def off(self) -> Array:
        """Whether the surrogate of each deciding token is switched off: its coefficient is 0, or the KL's alone."""
        if self.shape.form is None:
            return self.tokens.zero
        return np.asarray(self.shape.clipped & (self.weights[self.tokens.row] != 0))

    @cached_property
    def clipped(self) -> Array:
        """Whether each deciding token is switched off by a bound: the ratio acts, and is on the bound's side of 1."""
        shape, tokens = self.shape, self.tokens
        if shape.old is None:
            return np.zeros(len(tokens.value), dtype=bool)
        weights = self.weights[tokens.row]
        outside = np.where(weights < 0, shape.ratio > 1, shape.ratio < 1) & (weights != 0)
        return np.asarray(self.off & outside)

    @cached_property
    def clipped_columns(self) -> frozenset[int]:
        """The columns of these tokens."""
        return frozenset(self.tokens.column[self.clipped].tolist())

    @property
    def rows(self) -> int:
        """The number of rows of the step."""
        return len(self.step.rows)


def context(recording: Recording, step: Step, earlier: Sequence[Context]) -> Context:
    """Return the context of an update."""
    tokens, steps = tokens_of(step), [before.step for before in earlier]
    plain = Context(recording, step, tuple(earlier), tokens, tuple(_simplest(step, tokens, steps)))
    return plain if plain.fitting or not len(tokens.value) else next(_others(plain, steps), plain)


def _others(plain: Context, steps: Sequence[Step]) -> Iterator[Context]:
    """Yield the contexts that explain the coefficients in ways which few scripts have, the likelier ones first."""
    step, tokens, earlier = plain.step, plain.tokens, plain.earlier
    single = tokens.taken(np.array([len(step.alike[row]) == 1 for row in tokens.row.tolist()], dtype=bool))
    if 0 < len(single.value) < len(tokens.value) and (fitting := _simplest(step, single, steps)):
        yield replace(plain, tokens=single, fitting=tuple(fitting))  # a bound may switch off one of two equal rows
    left_out = masked(step, tokens, steps)
    trained = tokens.taken(~left_out)
    if 0 < len(trained.value) < len(tokens.value) and (fitting := _simplest(step, trained, steps)):
        columns = frozenset(tokens.column[left_out].tolist())
        yield replace(plain, tokens=trained, fitting=tuple(fitting), masked=columns)
    if fitting := _by_call(step, tokens, steps):
        yield replace(plain, fitting=tuple(fitting))
    if (counted := repeated.fitting(step, tokens, steps)) is not None:
        yield replace(plain, tokens=counted[0], fitting=tuple(counted[1]), factors=counted[2])
    yield from _odd_ratios(plain, steps)
    found = [before.reordered for before in earlier if before.reordered is not None]
    if (kl := reordered.fitting(step, tokens, steps, found)) is not None:
        yield replace(plain, tokens=kl.tokens, fitting=kl.fitting, reordered=kl)


def _odd_ratios(plain: Context, steps: Sequence[Step]) -> Iterator[Context]:
    """Yield the contexts whose ratio no definition has."""
    step, tokens, earlier = plain.step, plain.tokens, plain.earlier
    for before in earlier:
        if before.mistaken and (before.shape.old or "").startswith(rounded.BY):
            seen, fitting = rounded.again(step, tokens, before.step, before.shape, before.tokens)
            if fitting:
                yield replace(plain, tokens=seen, fitting=tuple(fitting), mistaken=True)
    known = {before.shape.old for before in earlier if before.mistaken and before.shape.old is not None}
    fitting = mistaken.fitting(step, tokens, steps, known) or inverse.fitting(step, tokens, steps)
    if fitting := fitting or rounded.fitting(step, tokens):
        yield replace(plain, fitting=tuple(fitting), mistaken=True)
    if fitting := own.fitting(step, tokens, steps):
        yield replace(plain, fitting=tuple(fitting))
    if fitting := powers.fitting(step, tokens, steps, _asked(plain.recording)):
        yield replace(plain, fitting=tuple(fitting), mistaken=True)


def _asked(recording: Recording) -> list[float]:
    """Return the temperatures that samplers were asked for."""
    asked = (event.get("request", {}).get("temperature") for event in recording.of("generate"))
    return [float(value) for value in asked if isinstance(value, (int, float))]


def _simplest(step: Step, tokens: Tokens, earlier: Sequence[Step]) -> list[Shape]:
    """Return the simplest shapes that agree with the coefficients."""
    fitting: list[Shape] = []
    level = (False, False)
    for shape in shapes.candidates(step, tokens, earlier) if len(tokens.value) else ():
        if shape.misfit > tokens.quantile:
            continue
        here = (shape.form is not None, shape.old is not None)
        if fitting and here[0] != level[0]:
            break  # a KL is looked for only where nothing simpler fits
        level = here
        fitting.append(shape)
    return fitting


def _by_call(step: Step, tokens: Tokens, earlier: Sequence[Step]) -> list[Shape]:
    """Return shapes with a KL that each of several forward passes averages over its own tokens."""
    if len({(row.row.rank, row.row.call) for row in step.rows}) < 2:
        return []
    shaped = shapes.candidates(step, tokens, earlier, by_call=True)
    return [shape for shape in shaped if shape.by_call and shape.misfit <= tokens.quantile]
