"""Textbook limits of losses within a step: from logits, with corrections, entropy masks, or a KL in the reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gates.arithmetic.bounded import clip, exp, log, where
from gates.arithmetic.number import Floats, Number, number, widest
from gates.families.loss.textbook import forms, scalar, wide
from gates.families.rows import Grid

CLIPS = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}  # the algorithms' defaults
NONE: dict[str, Any] = {"mask": None, "lengths": None, "weights": None, "delta": None, "beta": 0.0, "kl_ratio": "none"}


def loss_from_logits(
    logits: npt.ArrayLike,
    *,
    ids: npt.ArrayLike,
    prompt_lengths: npt.ArrayLike,
    lengths: npt.ArrayLike,
    temperature: float,
    **inputs: Any,
) -> dict[str, Floats]:
    """Return the limits of loss, gradient (B, L, V) and log-probs (B, T), from logits."""
    x, prompts, sizes = np.asarray(logits), np.asarray(prompt_lengths), np.asarray(lengths)
    width = int(sizes.max()) if inputs["old"] is None else np.shape(inputs["old"])[1]
    counts = np.arange(width) < sizes[:, None]
    rows, slots = np.nonzero(counts)
    positions = prompts[rows] + slots - 1  # of the logits that score a token
    of_token = np.arange(len(rows)), np.asarray(ids)[rows, positions + 1]
    scaled = number(x[rows, positions]) / scalar(temperature, number(x).dtype)
    top = scaled[np.arange(len(rows)), np.argmax(scaled.value, axis=1)].detached().reshape(-1, 1)
    shifted = scaled - top
    total = log(exp(shifted).sum(1, keepdims=True))
    whole = top + total
    grid, losses, slopes = Grid(counts, None), [], []
    scores = (shifted - total, scaled - whole)  # in the forms of log_softmax and of x - logsumexp(x)
    for logprobs in scores:
        policy = _spread(logprobs[of_token], counts)
        of_policy, by_logprob = forms(grid, policy, {**NONE, "kl_estimator": "k3", **inputs})
        losses += of_policy
        one_hot = np.zeros(scaled.shape)
        one_hot[of_token] = 1.0
        away = (number(one_hot, scaled.dtype) - exp(logprobs.detached())) / scalar(temperature, scaled.dtype)
        slopes += [slope[rows, slots].reshape(-1, 1) * away for slope in by_logprob]
    gradient = np.zeros(x.shape)
    gradient[rows, positions] = widest(slopes)
    return {
        "loss": widest(losses),
        "gradient": gradient,
        "logprobs": widest([_spread(logprobs[of_token], counts) for logprobs in scores]),
    }


def _spread(values: Number, counts: npt.NDArray[np.bool_]) -> Number:
    """Return values of tokens as a constant (B, T), 0 elsewhere."""
    wide = [np.zeros(counts.shape) for _ in range(3)]
    for target, part in zip(wide, (values.value, values.error, values.void), strict=True):
        target[counts] = part
    return Number(wide[0], values.dtype, wide[1], wide[2] > 0.0)


def rewarded_loss(
    policy: npt.ArrayLike,
    *,
    old: npt.ArrayLike,
    reference: npt.ArrayLike,
    mask: npt.ArrayLike,
    rewards: npt.ArrayLike,
    group_size: int,
    beta: float,
) -> dict[str, Floats]:
    """Return the limits of RLOO's loss, gradient and advantages with the KL subtracted from the rewards."""
    grid, dtype = Grid(np.asarray(mask, bool), None), number(policy).dtype
    difference = wide(grid, old, dtype) - wide(grid, reference, dtype)
    lowered = number(rewards, dtype) - scalar(beta, dtype) * difference.sum(1)
    groups = lowered.reshape(-1, group_size)
    sums = groups.sum(1, keepdims=True)
    others = groups - (sums - groups) / float(group_size - 1)
    scaled = (groups - sums / float(group_size)) * (float(group_size) / (group_size - 1))
    advantages = [form.reshape(-1) for form in (others, scaled)]
    call = {**NONE, "algorithm": "rloo", "old": old}
    results = [forms(grid, wide(grid, policy, dtype), {**call, "advantages": a.detached()}) for a in advantages]
    return {
        "loss": widest([loss for losses, _ in results for loss in losses]),
        "gradient": widest([slope for _, slopes in results for slope in slopes]),
        "advantages": widest(advantages),
    }


def loss_with_options(
    policy: npt.ArrayLike,
    *,
    entropy: npt.ArrayLike,
    entropy_share: float,
    entropy_bonus: float,
    parts: Sequence[int],
    **inputs: Any,
) -> dict[str, Floats]:
    """Return the limits of loss and both gradients with corrections, a top-entropy mask and an entropy bonus."""
    dtype, algorithm = number(policy).dtype, inputs["algorithm"]
    counts = np.asarray(inputs["mask"], bool)
    heights = np.where(counts, np.asarray(entropy, np.float64), 0.0)
    chosen = counts & (heights >= np.quantile(heights[counts], 1.0 - entropy_share))
    low, high = CLIPS[algorithm]
    losses, slopes = _corrected(
        policy,
        chosen,
        {
            **inputs,
            "epsilon_low": low,
            "epsilon_high": high,
            "dapo_denominator": "global" if algorithm == "dapo" else None,
            "parts": parts,
        },
    )
    share = scalar(entropy_bonus, dtype) / float(chosen.sum())
    bonus = (number(np.where(chosen, heights, 0.0), dtype) * share).sum()
    divided = number(np.where(chosen, heights, 0.0), dtype).sum() / float(chosen.sum()) * scalar(entropy_bonus, dtype)
    pull = where(chosen, share * np.ones(counts.shape), 0.0)
    return {
        "loss": widest([loss - form for loss in losses for form in (bonus, divided)]),
        "gradient": widest(slopes),
        "entropy_gradient": pull.limit(),
    }


def loss_constants(policy: npt.ArrayLike, **inputs: Any) -> dict[str, Floats]:
    """Return the limits of loss and gradient with corrections, for any algorithm with its own constants."""
    losses, slopes = _corrected(policy, np.asarray(inputs["mask"], bool), inputs)
    return {"loss": widest(losses), "gradient": widest(slopes)}


def _corrected(policy: npt.ArrayLike, chosen: Any, inputs: dict[str, Any]) -> tuple[list[Number], list[Number]]:
    """Return the forms of a loss with the correction as token weights, 0 for tokens that are not chosen."""
    grid, dtype = Grid(np.asarray(inputs["mask"], bool), None), number(policy).dtype
    behaviour = wide(grid, policy if inputs["old"] is None else inputs["old"], dtype)
    weights = number(np.ones(grid.counts.shape), dtype)
    if inputs["correction"] is not None:
        sampling = np.asarray(inputs["sampling"], np.float64)
        known = grid.counts & ~np.isnan(sampling)
        difference = where(known, behaviour - number(np.where(known, sampling, 0.0), dtype), 0.0)
        if inputs["correction_level"] == "seq_sum":
            difference = difference.sum(1, keepdims=True) * np.ones(grid.counts.shape)
        weights = _weights(exp(difference), inputs)
    weights = where(chosen, weights, 0.0)
    return forms(grid, wide(grid, policy, dtype), {**NONE, "kl_estimator": "k3", **inputs, "weights": weights})


def _weights(r: Number, inputs: dict[str, Any]) -> Number:
    low, high = scalar(inputs["correction_low"] or 0.0, r.dtype), scalar(inputs["correction_high"], r.dtype)
    if inputs["correction"] == "tis":
        return clip(r, low, high).detached()
    return where((r >= low) & (r <= high), r, 0.0).detached()


def overlong_penalty(lengths: npt.ArrayLike, *, limit: int, buffer: int) -> dict[str, Floats]:
    """Return the limits of DAPO's penalty, with a float32 division, as torch divides integers."""
    over = number(np.asarray(lengths, np.float64) - (limit - buffer), "float32")
    return {"penalty": (-clip(over / float(buffer), 0.0, 1.0)).limit()}
