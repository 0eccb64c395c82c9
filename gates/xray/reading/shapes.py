"""What the coefficients within rows are made of: a weight for each row, times a ratio, plus the gradient of a KL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gates.model import Array
from gates.xray.reading.tokens import Tokens
from gates.xray.step import EQUAL, PADDED, Step

WEIGHTED = "k3 times the ratio"  # its gradient is the KL's own: d(ρ·k3) = ρ·(k3 + 1 − exp(−x)) = ρ·x
FORMS: Mapping[
    str, Callable[[Array], Array]
] = {  # derivative of a KL's estimator in the policy's log-prob, x = policy − reference
    "k3": lambda x: 1.0 - np.exp(-x),
    "k2": lambda x: x,
    WEIGHTED: lambda x: x,
    "k3 with policy and reference exchanged": lambda x: np.exp(x) - 1.0,
}
CONSTANT = (
    "k1"  # its gradient is 1 on every token, whatever the reference; beside equal tokens it is a part of their weight
)
BOUNDS = (np.inf, 0.1, 0.2, 0.3, 0.5)  # of ratios, to begin the search for clipped tokens
TURNS = 20  # of that search; it ends when nothing changes
ROUNDS = 30  # of the fit that trusts no outlier
SHARP = 0.01  # relative error up to which a token says how strong a KL is


@dataclass(frozen=True, slots=True)
class Source:
    """Log-probs of the columns by other weights than those of this update."""

    name: str
    values: Array


@dataclass(frozen=True)
class Shape:
    """Coefficients as a sum: weight of the row × surrogate + β × multiplier of the row × form of the KL.

    Attributes:
        old: whose log-probs the ratio divides by; None: no ratio.
        form: estimator of the KL; None: no KL.
        reference: of the KL.
        by_length: whether the KL is averaged within rows; else over tokens.
        by_call: whether it is averaged over the tokens of each forward pass, and these averages over the passes.
        weights: of each row that has tokens.
        errors: of the weights.
        beta: coefficient of the KL, times what all tokens have in common.
        beta_error: of it.
        misfit: largest deviation in standard errors.
        clipped: tokens that the ratio's bound switched off, beside a KL.
        surrogate: the ratio of each token; 1 without one.
        inverse: whether the surrogate is the inverse of the ratio.
        power: exponent of the ratio in the surrogate, where it is another than 1 or −1.
        own: how tokens weigh by their own log-prob; empty where they do not.
    """

    old: str | None
    form: str | None
    reference: str | None
    by_length: bool
    weights: Mapping[int, float]
    errors: Mapping[int, float]
    beta: float
    beta_error: float
    misfit: float
    clipped: Array
    surrogate: Array
    by_call: bool = False
    inverse: bool = False
    power: float = 1.0
    own: str = ""

    @property
    def ratio(self) -> Array:
        """The ratio of each token, by which bounds cut it."""
        return np.asarray(1.0 / self.surrogate if self.inverse else self.surrogate)


def olds(step: Step, earlier: Sequence[Step]) -> list[Source]:
    """Return who may be the old policy: the trained model before this update, as it was scored or as it was recorded."""
    number = step.update.number
    sources = [
        Source(f"the weights before update {scorer.update + 1}", values)
        for scorer, values in step.update.scored
        if scorer.by == "trained model"
    ]
    for before in earlier:
        known = dict(zip(before.update.keys, before.update.log_probs, strict=True))
        values = np.array([known.get(key, np.nan) if key else np.nan for key in step.update.keys])
        sources.append(Source(f"the weights before update {before.update.number}", values))
    if number > 1:
        sources.append(Source("the weights before update 1", step.update.start_log_probs))
    return _distinct(step, sources)


def references(step: Step) -> list[Source]:
    """Return who may be the reference of a KL: the weights at the start, adapters off, or another model."""
    sources = [
        Source("the model without its adapters" if "off" in scorer.by else "another model", values)
        for scorer, values in step.update.scored
        if scorer.by not in {"trained model", PADDED}
    ]
    if step.update.number > 1:
        sources.append(Source("the weights before update 1", step.update.start_log_probs))
    return _distinct(step, sources)


def _distinct(step: Step, sources: Sequence[Source]) -> list[Source]:
    """Return the sources that differ on tokens that the attention mask shows; one name each is enough."""
    columns = {int(c) for row in step.rows for c in row.row.columns[row.row.attended & (row.row.columns >= 0)]}
    shown = np.array(sorted(columns), dtype=np.int64)
    kept: list[Source] = []
    for source in sources:
        if np.isfinite(source.values).any() and not any(
            np.allclose(source.values[shown], held.values[shown], rtol=0, atol=EQUAL, equal_nan=True) for held in kept
        ):
            kept.append(source)
    return kept


def differs(step: Step, tokens: Tokens, source: Source) -> bool:
    """Return whether the ratio to a source would show: it leaves 1 by more than the precision of some coefficient."""
    apart = step.update.log_probs[tokens.column] - source.values[tokens.column]
    room = 2 * tokens.quantile * tokens.error
    return bool((np.abs(tokens.value * np.expm1(apart)) > room)[np.isfinite(apart)].any())


def equal(tokens: Tokens) -> Shape:
    """Return the simplest shape: the trained tokens of a row have one coefficient."""
    return _solved(tokens, np.ones(len(tokens.value)), None, tokens.zero)


def weighed(tokens: Tokens, surrogate: Array, penalty: Array | None = None) -> Shape:
    """Return the shape of tokens that weigh by any numbers, with a term beside them where it is given."""
    return _solved(tokens, surrogate, penalty, tokens.zero if penalty is None else None)


def candidates(
    step: Step,
    tokens: Tokens,
    earlier: Sequence[Step],
    sources: Sequence[Source] | None = None,
    *,
    against: Sequence[Source] | None = None,
    by_call: bool = False,
) -> Iterator[Shape]:
    """Yield shapes, the simplest first: equal, ratio, KL, ratio and KL, ratio and a constant.

    Args:
        step: the update.
        tokens: that decide.
        earlier: updates before it.
        sources: of the ratios, where they are not the old policies.
        against: of the KL, where they are not the references.
        by_call: average the KL over the tokens of each forward pass, instead of within rows and over all tokens.
    """
    yield equal(tokens)
    surrogates: list[tuple[str | None, Array]] = [(None, np.ones(len(tokens.value)))]
    for old in olds(step, earlier) if sources is None else sources:
        ratio = np.exp(step.update.log_probs - old.values)[tokens.column]
        if np.isfinite(ratio).all():
            surrogates.append((old.name, ratio))
            yield named(_solved(tokens, ratio, None, tokens.zero), old=old.name)
    for reference in references(step) if against is None else against:
        apart = (step.update.log_probs - reference.values)[tokens.column]
        if not np.isfinite(apart).all():
            continue
        for form, derivative in FORMS.items():
            for by_length, divisor in _averages(step, tokens, by_call=by_call):
                for name, surrogate in surrogates:
                    ratio = surrogate if name else surrogates[-1][1]
                    penalty = derivative(apart) * (ratio if form == WEIGHTED else 1.0)
                    penalty = penalty / divisor
                    shape = clipping(tokens, surrogate, penalty) if name else _solved(tokens, surrogate, penalty, None)
                    names = {"old": name, "form": form, "reference": reference.name}
                    yield named(shape, **names, by_length=by_length, by_call=by_call)
    for name, surrogate in surrogates[1:]:
        for by_length, constant in () if by_call else _constants(step, tokens):
            yield named(clipping(tokens, surrogate, constant), old=name, form=CONSTANT, by_length=by_length)


def _averages(step: Step, tokens: Tokens, *, by_call: bool) -> Sequence[tuple[bool, Array | float]]:
    """Return how a KL may be averaged: whether within rows, and what the derivative of each token is divided by."""
    if not by_call:
        return ((True, lengths_of(step, tokens)), (False, 1.0))
    calls = [(row.row.rank, row.row.call) for row in step.rows]
    lengths = np.array([len(row.completion) for row in step.rows], dtype=float)
    totals = np.array([sum(lengths[k] for k, call in enumerate(calls) if call == calls[row]) for row in tokens.row])
    return ((False, totals * len(set(calls)) / lengths.sum()),)  # 1 where all passes have as many tokens


def to(step: Step, tokens: Tokens, source: Source) -> Shape | None:
    """Return the shape of ratios to one source without a KL, None where it lacks a token."""
    ratio = np.exp(step.update.log_probs - source.values)[tokens.column]
    return named(_solved(tokens, ratio, None, tokens.zero), old=source.name) if np.isfinite(ratio).all() else None


def with_penalty(
    step: Step, tokens: Tokens, reference: Source, old: str | None, earlier: Sequence[Step]
) -> Iterator[Shape]:
    """Yield the shapes with a k3 to one reference, or a k1, beside the surrogate that was found."""
    surrogate = np.ones(len(tokens.value))
    for source in olds(step, earlier):
        if source.name == old:
            surrogate = np.exp(step.update.log_probs - source.values)[tokens.column]
    derivative = FORMS["k3"]((step.update.log_probs - reference.values)[tokens.column])
    for by_length in (True, False):
        penalty = derivative / (lengths_of(step, tokens) if by_length else 1.0)
        yield named(_solved(tokens, surrogate, penalty, tokens.zero), old=old, by_length=by_length)
    for by_length, constant in _constants(step, tokens) if old else ():
        yield named(_solved(tokens, surrogate, constant, tokens.zero), old=old, by_length=by_length)


def _constants(step: Step, tokens: Tokens) -> list[tuple[bool, Array]]:
    """Return what a k1 adds to each token, and whether it is averaged within rows."""
    return [(True, 1.0 / lengths_of(step, tokens)), (False, np.ones(len(tokens.value)))]


def named(shape: Shape, **names: object) -> Shape:
    """Return a shape with other attributes."""
    return Shape(**{**{name: getattr(shape, name) for name in shape.__dataclass_fields__}, **names})


def lengths_of(step: Step, tokens: Tokens) -> Array:
    """Return for each token the length of its row's completion."""
    return np.array([len(step.rows[row].completion) for row in tokens.row], dtype=float)


def _solved(
    tokens: Tokens, surrogate: Array, penalty: Array | None, off: Array | None, trust: Array | None = None
) -> Shape:
    """Solve for the weights of rows and for β, each token weighted by its error and, where given, by a trust."""
    off = np.zeros(len(tokens.value), dtype=bool) if off is None else off
    row, count = tokens.index, len(tokens.rows)
    size = np.where(tokens.error > 0, tokens.error, 1.0) / (1.0 if trust is None else trust)
    s, y = np.where(off, 0.0, surrogate) / size, tokens.value / size
    if penalty is None:
        y = np.where(off, 0.0, y)
    f = np.zeros(len(y)) if penalty is None else penalty / size
    norms = np.bincount(row, s * s, count)
    inverse = np.divide(1.0, norms, out=np.zeros(count), where=norms > 0)

    def projected(values: Array) -> Array:
        return np.asarray(np.bincount(row, s * values, count) * inverse)

    rest = f - s * projected(f)[row]
    strength = float(rest @ rest)
    beta = float(rest @ y) / strength if strength > 0 else 0.0
    weights = projected(y - beta * f)
    left = np.abs(y - beta * f - s * weights[row])
    return Shape(
        old=None,
        form=None,
        reference=None,
        by_length=False,
        weights=dict(zip(tokens.rows, weights.tolist(), strict=True)),
        errors=dict(zip(tokens.rows, np.sqrt(inverse).tolist(), strict=True)),
        beta=beta,
        beta_error=strength**-0.5 if strength > 0 else float("inf"),
        misfit=float(left.max(initial=0.0)),
        clipped=off & (penalty is not None),
        surrogate=surrogate,
    )


def clipping(tokens: Tokens, ratio: Array, penalty: Array, *, sides: Array | None = None) -> Shape:
    """Solve with a KL and a clipped ratio: a token whose ratio is clipped has the KL's gradient alone.

    Which tokens are clipped is found in turns with the weights, from several bounds to begin with; a start that trusts no
    outlier gives the signs of the rows. `sides` are the ratios that bounds cut, where tokens weigh by other numbers.
    """
    sides = ratio if sides is None else sides
    best = start = _trusting(tokens, ratio, penalty)
    if best.misfit <= tokens.quantile:
        return best
    alone = _solved(tokens, ratio, penalty, _of_one_strength(tokens, penalty))
    if alone.misfit <= tokens.quantile:
        return alone
    sign = np.array([start.weights[row] for row in tokens.rows])[tokens.index]
    for bound in BOUNDS:
        off = np.where(sign < 0, sides > 1.0 + bound, sides < 1.0 - bound)
        for _ in range(TURNS):
            shape = _solved(tokens, ratio, penalty, off)
            if shape.misfit < best.misfit:
                best = shape
            weights = np.array([shape.weights[row] for row in tokens.rows])[tokens.index]
            left = tokens.value - shape.beta * penalty
            outside = np.where(np.where(weights == 0, sign, weights) < 0, sides > 1.0, sides < 1.0)
            closer = outside & (np.abs(left) < np.abs(left - weights * ratio))
            if (closer == off).all():
                break
            off = closer
    return (
        best
        if best.misfit <= tokens.quantile
        else min(best, _by_sign(tokens, ratio, penalty, best, sides), key=_misfit)
    )


def _misfit(shape: Shape) -> float:
    return shape.misfit


def _by_sign(tokens: Tokens, ratio: Array, penalty: Array, start: Shape, sides: Array) -> Shape:
    """Solve anew for the sign of each row: the one of both with which its tokens agree better, clipped tokens left out.

    Tokens on the side of 1 that no bound cuts give the weight of a row; where it has none, those that train.
    """
    best = shape = start
    off = start.clipped
    for _ in range(TURNS):
        left = tokens.value - shape.beta * penalty
        signed = [_one_sign(tokens, ratio, left, sign, sides) for sign in (-1.0, 1.0)]
        up = signed[0][1] <= signed[1][1]
        closer = np.where(up[tokens.index], signed[0][0], signed[1][0])
        if (closer == off).all():
            break
        off = closer
        shape = _solved(tokens, ratio, penalty, off)
        best = min(best, shape, key=_misfit)
    return best


def _of_one_strength(tokens: Tokens, penalty: Array) -> Array:
    """Return the most tokens whose coefficient is the KL's gradient times one number: what clipped tokens have."""
    with np.errstate(divide="ignore", invalid="ignore"):
        strength, room = tokens.value / penalty, 2 * tokens.quantile * tokens.error / np.abs(penalty)
        ordered = np.sort(strength)
        low, high = (np.searchsorted(ordered, strength + sign * room) for sign in (-1, 1))
        known = np.isfinite(strength) & (room < SHARP * np.abs(strength))
        most = int(np.where(known, high - low, 0).argmax())
        return np.asarray(np.abs(strength - strength[most]) <= room + room[most])


def _one_sign(tokens: Tokens, ratio: Array, left: Array, sign: float, sides: Array) -> tuple[Array, Array]:
    """Return which tokens are clipped if all rows weigh with one sign, and how badly each row agrees then."""
    row, count = tokens.index, len(tokens.rows)
    size = np.where(tokens.error > 0, tokens.error, 1.0)
    outside = sides > 1.0 if sign < 0 else sides < 1.0
    inside = np.bincount(row, ~outside, count) > 0
    used = np.where(inside[row], ~outside, np.abs(left) > tokens.quantile * size)
    s = np.where(used, ratio, 0.0) / size
    norms = np.bincount(row, s * s, count)
    weights = np.divide(np.bincount(row, s * left / size, count), norms, out=np.zeros(count), where=norms > 0)
    weights = np.where(weights * sign > 0, weights, 0.0)
    wanted = weights[row] * ratio
    off = outside & (np.abs(left) < np.abs(left - wanted))
    apart = (left - np.where(off, 0.0, wanted)) / size
    return off, np.bincount(row, np.log1p(apart**2), count)


def _trusting(tokens: Tokens, ratio: Array, penalty: Array) -> Shape:
    """Return the fit with the least sum of absolute deviations: outliers do not move it."""
    shape = _solved(tokens, ratio, penalty, None)
    for _ in range(ROUNDS):
        weights = np.array([shape.weights[row] for row in tokens.rows])[tokens.index]
        left = np.abs(tokens.value - weights * ratio - shape.beta * penalty) / tokens.error
        shape = _solved(tokens, ratio, penalty, None, np.maximum(left, 1.0) ** -0.5)
    return (
        _solved(tokens, ratio, penalty, None)
        if shape.misfit <= tokens.quantile
        else _untrusted(shape, tokens, ratio, penalty)
    )


def _untrusted(shape: Shape, tokens: Tokens, ratio: Array, penalty: Array) -> Shape:
    """Return a shape with the misfit of all its tokens, outliers included."""
    weights = np.array([shape.weights[row] for row in tokens.rows])[tokens.index]
    left = np.abs(tokens.value - weights * ratio - shape.beta * penalty) / tokens.error
    return named(shape, misfit=float(left.max(initial=0.0)))
