"""A reference that is the policy itself: its margins are 0 in a later update, so that nothing holds the policy back."""

from __future__ import annotations

import numpy as np

from gates.model import Array
from gates.xray.reading import margins
from gates.xray.reading.context import Context
from gates.xray.reading.margins import Apart
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import number
from gates.xray.step import PADDED

FAR = 100  # how many times the noise of a margin the policy must have moved
REMEDY = "score the reference with weights that updates do not change"


def readings(context: Context) -> list[Reading]:
    """Return that the reference which scored the pairs of a later update is the policy."""
    apart = margins.of(context)
    if apart is None or not apart.alike or context.step.update.number < 2:
        return []
    moved = np.abs(apart.policy - margins.of_log_probs(context, apart.pairs, context.step.update.start_log_probs))
    if not (np.isfinite(moved).all() and (moved > FAR * apart.noise).any()):
        return []
    scored = _scored(context)
    if not scored or not all(_equal(context, apart, values) for values in scored):
        return []
    name = f"the weights before update {context.step.update.number}"
    sentence = (
        f"the reference is the policy itself: the model that scored the pairs has {name}, "
        f"whose margins have moved by up to {number(float(moved.max()))} since update 1"
    )
    because = "its margins are the policy's, and all pairs weigh the same, as DPO's do then"
    return [Reading("reference", "attention", sentence, because, REMEDY, {"moved": float(moved.max())})]


def _scored(context: Context) -> list[Array]:
    """Return what other models scored since the update before: in the passes over the rows of this update."""
    update = context.step.update
    return [
        values
        for scorer, values in update.scored
        if scorer.by not in {"trained model", PADDED} and scorer.update == update.number - 1
    ]


def _equal(context: Context, apart: Apart, values: Array) -> bool:
    """Return whether a model's margins are the policy's."""
    left = np.abs(apart.policy - margins.of_log_probs(context, apart.pairs, values))
    return bool(np.isfinite(left).all() and (left <= apart.noise).all())
