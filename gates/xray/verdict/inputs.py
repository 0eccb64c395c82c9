"""The inputs of a definition, as the update recorded them: log-probs on the slots of rows, and the measured coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gates.model import Array
from gates.xray.documents import PER_TOKEN
from gates.xray.fit import quantile
from gates.xray.reading.context import Context
from gates.xray.step import EQUAL
from gates.xray.verdict.matching import identity
from gates.xray.verdict.notes import Note
from gates.xray.verdict.ragged import on_slots

STABLE = 1e-6  # what clips of the norm add to it before they divide, in torch and in MLX
ZERO = 1e-300


@dataclass(frozen=True)
class Measured:
    """The coefficients of an update, before its gradient was clipped.

    Attributes:
        columns: those of tokens that have a number.
        values: their coefficients.
        limits: the largest error to expect of each.
        total: columns of the update.
    """

    columns: Array
    values: Array
    limits: Array
    total: int

    def of(self, columns: Array, gradient: Array) -> Array:
        """Return what a gradient of slots gives for each measured column: the sum over the slots that share it."""
        shown = columns >= 0
        return np.bincount(columns[shown], gradient[shown], self.total)[self.columns]

    @property
    def relative(self) -> float:
        """The limit of the typical coefficient that is not 0, as a share of it; inf where all are."""
        sizes = np.abs(self.values)
        large = sizes > self.limits
        return float(np.median(self.limits[large] / sizes[large])) if large.any() else float("inf")

    def misfit(self, *wanted: Array, room: Array | float = 0.0) -> float:
        """Return the largest error in limits; of several predictions the nearer one counts for each column.

        Args:
            wanted: the predictions.
            room: how far each may be off itself.
        """
        if not len(self.columns):
            return float("inf")
        off = np.min([np.abs(self.values - values) for values in wanted], axis=0) / (self.limits + room)
        return float(off.max()) if np.isfinite(off).all() else float("inf")

    def factor(self, wanted: Array) -> float:
        """Return the number by which a prediction comes nearest; NaN where it is 0."""
        strength = float(((wanted / self.limits) ** 2).sum())
        return float((self.values * wanted / self.limits**2).sum()) / strength if strength > 0.0 else float("nan")


@dataclass(frozen=True)
class Inputs:
    """The rows of an update as a definition reads them, (B, T).

    Attributes:
        columns: of each slot; −1 where there is none.
        mask: slots of completions.
        policy, old, reference: log-probs; `reference` is None where nobody scored one.
        of_old, of_reference: whose they are, in words.
        equal: nats within which two passes of one model differ.
        sampling: log-probs of the sampler, NaN where it recorded none; None where they are not noted.
        begins: (B,), the slot at which each completion begins.
    """

    columns: Array
    mask: Array
    policy: Array
    old: Array
    reference: Array | None
    of_old: str
    of_reference: str
    equal: float = EQUAL
    sampling: Array | None = None
    begins: Array | None = None

    @cached_property
    def moved(self) -> bool:
        """Whether the ratio is not 1."""
        return bool(np.abs(self.policy - self.old)[self.mask].max(initial=0.0) > self.equal)

    @cached_property
    def apart(self) -> bool:
        """Whether a KL to the reference has a gradient."""
        if self.reference is None:
            return False
        return bool(np.abs(self.policy - self.reference)[self.mask].max(initial=0.0) > self.equal)

    @property
    def keywords(self) -> dict[str, Any]:
        """The arrays of `policy_loss`, without advantages."""
        return {
            "policy": self.policy,
            "old": self.old,
            "reference": self.reference,
            "mask": self.mask,
            "weights": None,
        }

    def with_mask(self, mask: Array) -> Inputs:
        """Return the same with other slots that train."""
        return replace(self, mask=mask)


@dataclass(frozen=True)
class Parts:
    """The slots of rows by what they are, (B, T): the whole rows, prompt and padding included.

    Attributes:
        columns: of each slot; −1 where there is none.
        prompt, completion, closing, after: masks.
        truncated: rows that the sampler's limit ended.
    """

    columns: Array
    prompt: Array
    completion: Array
    closing: Array
    after: Array
    truncated: Array


def measured(context: Context) -> Measured:
    """Return the coefficients of tokens, divided by the factor of the clip of the norm."""
    update, fit = context.step.update, context.step.fit
    tokens = np.array([kind in PER_TOKEN for kind in update.kinds], dtype=bool)
    columns = np.flatnonzero(tokens & np.isfinite(fit.coefficients) & np.isfinite(fit.errors))
    factor = clipped(context)
    errors = np.maximum(fit.errors[columns], ZERO)
    limits = quantile(len(columns)) * errors
    return Measured(columns, fit.coefficients[columns] / factor, limits / factor, len(update.kinds))


def clipped(context: Context) -> float:
    """Return the factor by which the gradient was clipped."""
    clip = context.step.update.document.clip
    return 1.0 if clip is None or not clip.norm > 0.0 else min(1.0, clip.limit / (clip.norm + STABLE))


def parts_of(context: Context, note: Note) -> Parts:
    """Return the slots of the noted rows, each whole."""
    rows = [context.step.rows[index] for index in note.kept]
    width = max(len(row.row.ids) for row in rows)
    shape = (len(rows), width)
    columns = np.full(shape, -1, dtype=np.int64)
    masks = {name: np.zeros(shape, np.bool_) for name in ("prompt", "completion", "closing", "after")}
    for index, row in enumerate(rows):
        count, begin = len(row.row.ids), note.begins[index]
        columns[index, :count] = row.row.columns
        shown = np.zeros(width, np.bool_)
        shown[:count] = row.row.attended & (row.row.columns >= 0)
        at = np.arange(width)
        begin = count if begin is None else begin
        after = np.isin(at, row.after)
        completion = shown & (at >= begin) & ~after
        if row.closing is not None and row.closing >= begin and columns[index, row.closing] >= 0:
            completion[row.closing] = masks["closing"][index, row.closing] = True
        masks["prompt"][index] = shown & (at < begin)
        masks["completion"][index] = completion
        masks["after"][index] = (columns[index] >= 0) & (at >= begin) & ~completion
    truncated = np.array([bool(row.truncated) for row in rows], dtype=bool)
    return Parts(columns, masks["prompt"], masks["completion"], masks["closing"], masks["after"], truncated)


def inputs_of(context: Context, note: Note, parts: Parts, since: int = 0) -> Inputs:
    """Return the inputs on the slots of whole rows; passes before so many updates do not give old log-probs."""
    old, of_old = _old(context, note, parts, since)
    reference, of_reference = _reference(context, note, parts)
    sampled = note.tokens.get("sampler_log_probs")
    return Inputs(
        columns=parts.columns,
        mask=parts.completion,
        policy=_slots(context.step.update.log_probs, parts.columns),
        old=old,
        reference=reference,
        of_old=of_old,
        of_reference=of_reference,
        equal=max(EQUAL, context.step.fit.rounding),
        sampling=None
        if sampled is None
        else on_slots("sampler_log_probs", sampled, note.rows.tolist(), parts.completion),
        begins=_begins(parts),
    )


def _begins(parts: Parts) -> Array:
    return np.where(parts.completion.any(axis=1), parts.completion.argmax(axis=1), 0)


def completions(inputs: Inputs, parts: Parts) -> Inputs:
    """Return the inputs with each row's slots from the begin of its completion on, as wide as the longest."""
    begins = _begins(parts)
    width = inputs.mask.shape[1]
    longest = max(1, int((width - begins).max()))
    at = begins[:, None] + np.arange(longest)[None, :]
    inside, at = at < width, np.minimum(at, width - 1)
    arrays: Mapping[str, Array] = {
        name: np.take_along_axis(getattr(inputs, name), at, axis=1)
        for name in ("columns", "mask", "policy", "old", "reference", "sampling")
        if getattr(inputs, name) is not None
    }
    return replace(
        inputs,
        **{**arrays, "mask": arrays["mask"] & inside, "columns": np.where(inside, arrays["columns"], -1)},
        begins=np.zeros(len(begins), np.int64),
    )


def _slots(values: Array, columns: Array) -> Array:
    """Return the numbers of columns on slots; 0 where there is none."""
    wide = np.where(columns >= 0, values[np.maximum(columns, 0)], 0.0)
    return np.where(np.isfinite(wide), wide, 0.0)


def _old(context: Context, note: Note, parts: Parts, since: int) -> tuple[Array, str]:
    """Return the old log-probs of each row: by the trained model at the earliest pass over the row, else by the policy.

    A pass may be one without gradient, or the update in which the row was trained first.
    """
    update = context.step.update
    old, names = _slots(update.log_probs, parts.columns), set[str]()
    passes: list[tuple[int, Array, set[str] | None]] = [
        (scorer.update, values, None) for scorer, values in update.scored if scorer.by == "trained model"
    ]
    for before in context.earlier:
        before_keys = dict(zip(before.step.update.keys, before.step.update.log_probs, strict=True))
        whole = {identity(before.step, row) for row in range(before.rows)}
        values = np.array([before_keys.get(key, np.nan) if key else np.nan for key in update.keys])
        passes.append((before.step.update.number - 1, values, whole))
    for index, place in enumerate(note.kept):
        mask, columns = parts.completion[index], parts.columns[index]
        for made, values, rows in sorted(passes, key=lambda each: each[0]):
            if made < since:
                continue
            complete = rows is None or identity(context.step, place) in rows
            if complete and mask.any() and np.isfinite(values[columns[mask]]).all():
                known = (columns >= 0) & np.isfinite(values[np.maximum(columns, 0)])
                old[index] = np.where(known, _slots(values, columns), old[index])
                names.add(f"the weights before update {made + 1}")
                break
        else:
            names.add("the policy")
    return old, " and ".join(sorted(names))


def _reference(context: Context, note: Note, parts: Parts) -> tuple[Array | None, str]:
    """Return the log-probs of the reference: noted, another model's or those without adapters, else at the start."""
    if (listed := note.tokens.get("reference_log_probs")) is not None:
        wide = on_slots("reference_log_probs", listed, note.rows.tolist(), parts.completion)
        return np.where(np.isfinite(wide), wide, 0.0), "the note"
    update, mask = context.step.update, parts.completion
    needed = parts.columns[mask]
    for by in ("another model", "trained model with adapters off"):
        for scorer, values in update.scored:
            if scorer.by == by and np.isfinite(values[needed]).all():
                name = "another model" if by == "another model" else "the model without its adapters"
                return _slots(values, parts.columns), name
    if np.isfinite(update.start_log_probs[needed]).all():
        return _slots(update.start_log_probs, parts.columns), "the weights before update 1"
    return None, ""
