"""A KL that weighs all tokens of a row alike: of the sum of the row's log-probs, or by k1, whose gradient is a constant.

Such a term changes no token within its row, so rows are compared: with each other, where the term is all that is left of some
of them; and by their sum over a prompt, which advantages less their mean make 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from gates.model import Array
from gates.xray.reading import objective, shapes
from gates.xray.reading.context import Context
from gates.xray.reading.shapes import Source
from gates.xray.step import EQUAL, shared

SUMS: Mapping[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {  # of x = policy − reference of a row
    "k3": (lambda x: 1.0 - np.exp(-x), lambda x: np.exp(-x)),  # the gradient of the estimator, and its derivative
    "k2": (lambda x: x, np.ones_like),
}
SHARP = 1e-2  # relative error up to which a row decides
LEAST = 3  # rows that must agree
UNLIKE = 1.1  # how far the terms of rows that agree must lie apart
CHANCE = 1e-3  # by which groups may agree on a constant that is none
ROUGH = 0.03  # the same, for what is only mentioned
SMALL = 0.2  # of the largest advantage: a larger constant may be rewards without a baseline
LEVELS = ("none", "row product", "row mean")  # of the ratio that rows weigh by


@dataclass(frozen=True, slots=True)
class RowTerm:
    """A term that all tokens of a row have alike, before the gradient was clipped.

    Attributes:
        forms: estimators that fit.
        references: whose log-probs it compares with, as far as it shows.
        by_length: whether it is divided by the length of the row; None where that does not show.
        size: what a token has of it, for a gradient of 1 of the estimator.
        error: largest error of it.
        alone: rows of which it is all that is left.
    """

    forms: tuple[str, ...]
    references: tuple[str, ...]
    by_length: bool | None
    size: float
    error: float
    alone: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """The rows of an update that have a weight; equal rows stand once.

    Attributes:
        index: of each row.
        weight, error: before the gradient was clipped; the error is the largest to expect.
        length: tokens of its completion.
    """

    index: Array
    weight: Array
    error: Array
    length: Array


def of(context: Context) -> RowTerm | None:
    """Return the term of an update's rows, None where none shows."""
    if not _usable(context):
        return None
    return _of_sums(context) or _constant(context, CHANCE)


def perhaps(context: Context) -> RowTerm | None:
    """Return a constant that may be on every token, where prompts agree on it so roughly that it may be chance."""
    return _constant(context, ROUGH) if _usable(context) else None


def excluded(context: Context, levels: Sequence[str] = LEVELS) -> float | None:
    """Return the largest term that would stay unseen, where the rows of every prompt sum to 0; None where they do not.

    Args:
        context: of the update.
        levels: of the ratio by which rows may weigh.
    """
    if not _usable(context):
        return None
    for way in _ways(levels):
        groups = list(_groups(context, way))
        if groups and all(any(abs(value) <= error for value, error in options) for options in groups):
            return max(error for options in groups for _, error in options)
    return None


def scored(context: Context) -> tuple[str, ...]:
    """Return the names of references that the script has scored."""
    scorers = context.step.update.scored
    names = (
        (source.name for source in shapes.references(context.step))
        if any(who.by != "trained model" for who, _ in scorers)
        else ()
    )
    return tuple(dict.fromkeys(name for name in names if not name.startswith("the weights")))


def constants(context: Context) -> Array:
    """Return what each row's typical coefficient has of a constant on every token, as it was recorded."""
    term = of(context)
    if term is None or term.forms != (shapes.CONSTANT,):
        return np.zeros(context.rows)
    clip = context.step.update.document.clip
    lengths = np.array([max(1, len(row.completion)) for row in context.step.rows], dtype=float)
    return term.size * (clip.factor if clip else 1.0) / (lengths if term.by_length else np.ones(context.rows))


def ratio(context: Context) -> tuple[str, str, Array] | None:
    """Return the level of the ratio that rows weigh by, whose it is, and the ratios: only so the rows of each prompt sum to 0."""
    plain = excluded(context, ("none",)) is not None
    if plain or not _usable(context) or of(context) is not None:
        return None
    rows = _rows(context)
    sources = [*shapes.references(context.step), *shapes.olds(context.step, [b.step for b in context.earlier])]
    for (by_length, level), source in product(_ways(), sources if context.step.prompts else ()):
        logs = _apart(context, rows, source) / (rows.length if level == "row mean" else 1.0)
        unit = (rows.length if by_length else 1.0) * np.exp(-logs)
        weights, errors = rows.weight * unit, rows.error * unit
        groups = list(_members(context, rows))
        if level == "none" or not groups or not np.isfinite(weights).all() or (np.abs(rows.weight) <= rows.error).any():
            continue
        sums = [(abs(weights[at].sum()), np.hypot.reduce(errors[at]), np.abs(weights[at]).max()) for at in groups]
        chance = prod(min(1.0, 2.0 * error / largest) for _, error, largest in sums) * len(LEVELS) * 2 * len(sources)
        if all(total <= error for total, error, _ in sums) and chance < CHANCE:
            return level, source.name, np.exp(logs)
    return None


def _usable(context: Context) -> bool:
    shape = context.shape
    plain = bool(context.fitting) and shape.form is None and shape.old is None and not shape.own
    return plain and objective.kind(context) == "policy gradient" and objective.sampled(context)


def _rows(context: Context) -> Rows:
    shape, clip = context.shape, context.step.update.document.clip
    factor = clip.factor if clip else 1.0
    index = np.array(sorted(shape.weights), dtype=np.int64)
    weight = np.array([shape.weights[row] for row in index])
    error = np.maximum([shape.errors[row] for row in index], context.step.fit.rounding * np.abs(weight))
    length = np.array([len(context.step.rows[row].completion) for row in index], dtype=float)
    return Rows(index, weight / factor, context.tokens.quantile * error / factor, length)


def _apart(context: Context, rows: Rows, source: Source) -> Array:
    """Return policy − source, summed over the completion of each row; NaN where a token is not scored."""
    values = context.step.update.log_probs - source.values
    return np.array(
        [values[context.step.rows[row].row.columns[context.step.rows[row].completion]].sum() for row in rows.index]
    )


def _of_sums(context: Context) -> RowTerm | None:
    """Return the KL of rows' sums that is all that is left of some rows, as where a bound has switched them off."""
    rows, fitting = _rows(context), list[RowTerm]()
    for reference, form, by_length in product(shapes.references(context.step), SUMS, (False, True)):
        apart = _apart(context, rows, reference)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            gradient, slope = (of_form(apart) for of_form in SUMS[form])
            unit = gradient / (rows.length if by_length else 1.0)
            size = rows.weight / unit
            error = np.hypot(rows.error / np.abs(unit), size * slope * EQUAL / gradient)
            sharp = np.isfinite(size) & (error < SHARP * np.abs(size)) & (size > 0)
        agree = _agreeing(size, error, sharp)
        units = np.abs(unit[agree])
        if len(agree) >= LEAST and units.max() > UNLIKE * units.min():
            centre = float(np.average(size[agree], weights=error[agree] ** -2.0))
            alone = tuple(int(row) for row in rows.index[agree])
            names = (form,), (reference.name,)
            fitting.append(RowTerm(*names, by_length, centre, float(error[agree].min()), alone))
    most = max((len(term.alone) for term in fitting), default=0)
    best = [term for term in fitting if len(term.alone) == most]
    return _joined(best) if best else None


def _agreeing(size: Array, error: Array, sharp: Array) -> Array:
    """Return the most rows that agree on one number."""
    known = np.flatnonzero(sharp)
    near = [known[np.abs(size[known] - size[row]) <= error[known] + error[row]] for row in known]
    return max(near, key=len, default=known)


def _joined(terms: Sequence[RowTerm]) -> RowTerm:
    """Return terms that fit alike as one."""
    first = terms[0]
    forms = tuple(dict.fromkeys(form for term in terms for form in term.forms))
    references = tuple(dict.fromkeys(name for term in terms for name in term.references))
    alike = len({term.by_length for term in terms}) == 1
    return RowTerm(forms, references, first.by_length if alike else None, first.size, first.error, first.alone)


Way = tuple[bool, str]  # whether a row is divided by its length, and the ratio that rows weigh by


def _ways(levels: Sequence[str] = LEVELS) -> Iterator[Way]:
    return ((by_length, level) for level in levels for by_length in (False, True))


def _constant(context: Context, most: float) -> RowTerm | None:
    """Return the constant without which the rows of every prompt sum to 0, in this update and those before it.

    Args:
        context: of the update.
        most: by what chance the prompts may agree on it.
    """
    contexts = [each for each in (*context.earlier, context) if _usable(each)]
    for way in _ways():
        groups = [options for each in contexts for options in _groups(each, way)]
        size, error = _common(groups)
        rows = _rows(context)
        unit = rows.length if way[0] else np.ones(len(rows.weight))
        left = np.abs(rows.weight * unit - size)
        alone = rows.index[left <= rows.error * unit + error]
        whole = len(alone) == len(rows.index) >= LEAST
        if size > 0 and (whole or (_chance(groups, size) < most and size < SMALL * left.max())):
            even = len(set(rows.length.tolist())) == 1
            alone_rows = tuple(int(row) for row in alone) if whole else ()
            by_length = None if even else way[0]
            return RowTerm(("k1",), scored(context), by_length, size, error, alone_rows)
    return None


def _groups(context: Context, way: Way) -> Iterator[list[tuple[float, float]]]:
    """Yield, for each prompt with several rows, the constants that make them sum to 0, each with its error: one for each old policy."""
    by_length, level = way
    rows, step = _rows(context), context.step
    sources = [*shapes.olds(step, [before.step for before in context.earlier]), *shapes.references(step)]
    apart = [] if level == "none" else [_apart(context, rows, source) for source in sources]
    for at in _members(context, rows):
        unit = rows.length[at] if by_length else np.ones(len(at))
        logs = [values[at] / (rows.length[at] if level == "row mean" else 1.0) for values in apart]
        ratios = [np.ones(len(at)), *(np.exp(values) for values in logs if np.isfinite(values).all())]
        yield _distinct([_balance(rows.weight[at] * unit, rows.error[at] * unit, ratio) for ratio in ratios])


def _members(context: Context, rows: Rows) -> Iterator[Array]:
    """Yield the places of the rows of each prompt, where all have a weight."""
    step, place = context.step, {int(row): k for k, row in enumerate(rows.index)}
    if any(prompt is None for prompt in step.prompts):
        return
    for members in shared(step.prompts).values():
        firsts = [step.alike[row][0] for row in members]
        if len(members) > 1 and all(row in place for row in firsts):
            yield np.array([place[row] for row in firsts])


def _balance(weights: Array, errors: Array, ratio: Array) -> tuple[float, float]:
    inverse = 1.0 / ratio
    return float((weights * inverse).sum() / inverse.sum()), float(np.hypot.reduce(errors * inverse) / inverse.sum())


def _distinct(options: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    kept: list[tuple[float, float]] = []
    for value, error in options:
        if not any(abs(value - before) <= error for before, _ in kept):
            kept.append((value, error))
    return kept


def _common(groups: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float]:
    """Return the number other than 0 that every group has among its own, and its error; NaN where there is none."""
    for value, error in sorted((option for options in groups[:1] for option in options), key=lambda option: option[1]):
        matching = [[o for o in options if abs(o[0] - value) <= o[1] + error] for options in groups]
        if all(matching) and abs(value) > 4 * error:
            return value, error
    return float("nan"), float("nan")


def _chance(groups: Sequence[Sequence[tuple[float, float]]], size: float) -> float:
    """Return by what chance the groups agree on a number."""
    by_chance = (min(1.0, len(options) * 2.0 * max(error for _, error in options) / size) for options in groups[1:])
    return prod(by_chance) * len(groups[0]) if len(groups) > 1 else 1.0
