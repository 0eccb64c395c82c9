"""What happened around an optimizer's steps: weights that something else changed, and steps that had no gradient."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gates.model import Array
from gates.xray.ranks import Update
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import share

EXACT = 16 * 2.0**-24  # of a weight: what is changed and changed back in float32 differs by a few roundings
HALVES = {"bfloat16": (8, -126), "float16": (11, -14)}  # digits of a number in base 2, and the least exponent


def readings(context: Context) -> list[Reading]:
    """Return what happened before the update, outside of the optimizer's step."""
    return [*_changed(context), *_empty(context)]


def _changed(context: Context) -> Iterator[Reading]:
    """Yield that weights are not those that the update before has left."""
    update = context.step.update
    before = context.earlier[-1].step.update if context.earlier else None
    if before is None or not _same_parameters(before, update):
        return
    left, begun = (np.asarray(values, np.float64) for values in (before.sample["after"], update.sample["before"]))
    changed = np.abs(begun - left) > EXACT * np.maximum(np.abs(begun), np.abs(left))
    if not changed.any():
        return
    first = np.asarray(before.sample["before"], np.float64)
    back = changed & (begun == first)
    numbers = {"changed": int(changed.sum()), "back": int(back.sum()), "weights": len(changed)}
    because = (
        f"{share(float(changed.mean()))} of the sampled weights are not those that update {before.number} has left"
    )
    between = f"weights changed between updates {before.number} and {update.number} outside of the optimizer"
    if (begun == first).all():
        sentence = f"{between}: all are those before update {before.number}, which was not kept"
        remedy = "keep what the optimizer returns, and load no earlier weights"
        yield Reading("weights", "attention", sentence, because, remedy, numbers)
        return
    dtype = _rounded(left[changed], begun[changed]) if update.document.dtype not in HALVES else None
    if dtype is None:
        yield Reading("weights", "attention", between, because, numbers=numbers)
        return
    moved = max(1, int((left != first).sum()))
    lost = f": the update of {share(float(back.sum()) / moved)} of the weights is lost" if back.any() else ""
    sentence = f"{between}, as by rounding to {dtype}{lost}"
    remedy = "keep the weights that the optimizer moves in float32"
    yield Reading("weights", "attention", sentence, because, remedy, {**numbers, "dtype": dtype})


def _same_parameters(before: Update, update: Update) -> bool:
    """Return whether two updates follow each other and sampled the same weights."""
    if before.number != update.number - 1 or before.document.identity != update.document.identity:
        return False
    if update.document.missed or not {"before", "after"} <= set(before.sample) & set(update.sample):
        return False
    return before.document.trained == update.document.trained and (
        before.sample["after"].shape == update.sample["before"].shape
    )


def _rounded(left: Array, begun: Array) -> str | None:
    """Return the dtype whose numbers these weights are, each within a spacing of what it was; None where there is none."""
    for dtype, (digits, least) in HALVES.items():
        exponents = np.maximum(np.frexp(left)[1] - 1, least)
        spacing = np.ldexp(1.0, exponents - (digits - 1))
        if (begun == np.rint(begun / spacing) * spacing).all() and (np.abs(begun - left) <= spacing).all():
            return dtype
    return None


def _empty(context: Context) -> Iterator[Reading]:
    """Yield that the optimizer has made steps without gradient since the update before."""
    document = context.step.update.document
    if not document.empty.steps:
        return
    name, times = document.optimizer.name, document.empty.steps
    how = "an optimizer step" if times == 1 else f"{times:,} optimizer steps"
    sentence = f"{how} without a gradient came before update {document.update}"
    early = document.update == 1 and document.empty.after_passes
    because = f"{name}.step, with all gradients absent or 0, {'after' if document.empty.after_passes else 'before'} the model's first pass"
    remedy = (
        "call backward before step: else a step takes the gradient of the update before it, and the last one is lost"
    )
    yield Reading(
        "empty step", "attention" if early else "read", sentence, because, remedy if early else "", {"steps": times}
    )
