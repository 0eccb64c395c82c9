"""Gradients whose norm was clipped before they were whole, and the coefficients as they were before."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gates.model import Array
from gates.xray.documents import Clipped
from gates.xray.ranks import Row, Update
from gates.xray.reading.words import number, rows
from gates.xray.step import Step

STABLE = 1e-6  # what clips of the norm add to it before they divide, in torch and in MLX
ALIKE = 1e-3  # of a norm: the clips of one gradient agree on it to 1e-6 in float32, and to this much in half precision


@dataclass(frozen=True, slots=True)
class Parts:
    """Clips of the norm between the passes of one update.

    Attributes:
        count: clips that scaled something.
        passes: how many forward passes came before each of them.
        factors: by which the rows of each pass were multiplied in all; empty where that is not known.
    """

    count: int
    passes: tuple[int, ...]
    factors: tuple[float, ...]

    @property
    def again(self) -> bool:
        """Whether each clip scaled what earlier clips had scaled already."""
        return len(set(self.factors)) > 1


def parts(update: Update) -> Parts | None:
    """Return the clips of an update's gradient, where one scaled it before it was whole; else None."""
    clips, total = update.document.clips, _passes(update)
    early = [
        clip
        for clip, later in itertools.pairwise(clips)
        if 0 < clip.passes < later.passes and _scales(clip) and not _alike(later.norm, _left(clip))
    ]
    if not early:
        return None
    scaled = [clip for clip in clips if _scales(clip)]
    return Parts(len(scaled), tuple(clip.passes for clip in scaled), _factors(update, clips, total))


def whole(step: Step) -> Step:
    """Return an update with the coefficients that it had without the clips of its parts; as it is where there are none."""
    clipped = parts(step.update)
    if clipped is None or not clipped.again:
        return step
    least, largest = (np.full(len(step.update.kinds), np.nan) for _ in range(2))  # factor of each column's rows
    for row in step.rows:
        columns = row.row.columns[row.row.columns >= 0]
        least[columns] = np.fmin(least[columns], clipped.factors[row.row.call])
        largest[columns] = np.fmax(largest[columns], clipped.factors[row.row.call])
    factor, fit = np.nan_to_num(least, nan=1.0), step.fit
    mixed = (least < largest) & ~fit.zero(np.arange(len(factor)))
    coefficients = np.where(mixed, np.nan, fit.coefficients / factor)
    document = step.update.document.model_copy(update={"clip": None})
    return replace(
        step,
        update=replace(step.update, document=document),
        fit=replace(fit, coefficients=coefficients, errors=fit.errors / factor),
    )


def said(update: Update, clipped: Parts) -> str:
    """Return what the clips did, as a sentence."""
    sentence = f"the norm was clipped {clipped.count} times before this step, between its passes"
    if not clipped.again:
        return f"{sentence}: the rows of each pass are scaled by a factor of their own"
    by_factor = [(factor, _rows_of(update.rows, call)) for call, factor in enumerate(clipped.factors)]
    each = ", ".join(f"{rows(indices)} by {number(factor)}" for factor, indices in by_factor if indices)
    return f"{sentence}, so that earlier rows are scaled down again and again: {each}"


def _rows_of(every: Sequence[Row], call: int) -> list[int]:
    return [index for index, row in enumerate(every) if row.call == call]


def _passes(update: Update) -> int:
    return 1 + max((row.call for row in update.rows if row.rank == update.document.rank), default=-1)


def _factor(clip: Clipped) -> float:
    return min(1.0, clip.limit / (clip.norm + STABLE))


def _scales(clip: Clipped) -> bool:
    return not _alike(clip.norm, _left(clip))


def _left(clip: Clipped) -> float:
    return clip.norm * _factor(clip)


def _alike(norm: float, other: float) -> bool:
    return abs(norm - other) <= ALIKE * max(norm, other)


def _factors(update: Update, clips: Sequence[Clipped], total: int) -> tuple[float, ...]:
    """Return the factor of each pass, where clips scale the sum of all passes before; none where they scale each by itself."""
    document = update.document
    pairs = itertools.pairwise(clips)
    summed = all(_alike(later.norm, _left(clip)) for clip, later in pairs if clip.passes == later.passes)
    last = clips[-1]
    if last.passes == total and not document.restricted:
        summed = summed and _alike(document.gradient_norm, _left(last))
    if not summed or document.world_size > 1:
        return ()
    factors: Array = np.array([_factor(clip) for clip in clips])
    before = np.array([clip.passes for clip in clips])
    return tuple(float(factors[before > call].prod()) for call in range(total))
