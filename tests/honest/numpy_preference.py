"""Preference losses in plain NumPy, in the dtype of the data, with gradients by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def sigmoid(x: Any) -> Any:
    """Return σ(x)."""
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def logsigmoid(x: Any) -> Any:
    """Return log σ(x)."""
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def preference_loss(
    *,
    policy: Any,
    reference: Any,
    mask: Any,
    loss: Any,
    beta: Any,
    label_smoothing: Any,
    lengths: Any,
    penalty: Any,
    margin: Any,
    nll: Any,
    attention_mask: Any = None,
) -> Any:
    """Return the mean over pairs, and its gradient."""
    dtype, m = policy.dtype.type, mask.astype(policy.dtype)
    n = m.sum(1)
    ref = np.zeros_like(policy) if reference is None else reference
    ratios = ((policy - ref) * m).sum(1)
    sums = (policy * m).sum(1)
    averaged = loss in {"simpo", "orpo"} or lengths == "mean"
    x = {"simpo": sums, "orpo": sums, "cpo": sums}.get(loss, ratios)
    x = x / n if averaged else x
    c, r = x[0::2], x[1::2]
    pairs = len(c)
    dc = dr = None
    if loss == "dpo":
        z = beta * (c - r)
        losses = -logsigmoid(z) * (1 - label_smoothing) - logsigmoid(-z) * label_smoothing
        dc = beta * (label_smoothing * sigmoid(z) - (1 - label_smoothing) * sigmoid(-z))
    elif loss == "hinge":
        losses = np.maximum(0, 1 - beta * (c - r))
        dc = np.where(beta * (c - r) < 1, -dtype(beta), dtype(0))
    elif loss == "ipo":
        off = c - r - 1 / (2 * beta)
        losses, dc = off**2, 2 * off
    elif loss == "dpop":
        behind = np.maximum(0, -c)
        z = beta * (c - r - penalty * behind)
        losses = -logsigmoid(z)
        dr = beta * sigmoid(-z)
        dc = -dr * (1 + penalty * (behind > 0))
    elif loss == "simpo":
        z = beta * (c - r) - margin
        losses, dc = -logsigmoid(z), -beta * sigmoid(-z)
    elif loss == "cpo":
        z = beta * (c - r)
        losses, dc = -logsigmoid(z), -beta * sigmoid(-z)
    else:
        odds_c, odds_r = c - np.log1p(-np.exp(c)), r - np.log1p(-np.exp(r))
        z = odds_c - odds_r
        losses = -beta * logsigmoid(z)
        dc, dr = -beta * sigmoid(-z) / (1 - np.exp(c)), beta * sigmoid(-z) / (1 - np.exp(r))
        if attention_mask is None:
            losses, dc = losses - c, dc - 1
    dr = -dc if dr is None else dr
    slopes = np.stack([dc, dr], 1).reshape(-1) / pairs
    gradient = (slopes / n if averaged else slopes)[:, None] * m
    value = losses.mean()
    if loss == "cpo" or attention_mask is not None:
        counted = (m if attention_mask is None else attention_mask.astype(policy.dtype)) * (np.arange(len(m)) % 2 == 0)[
            :, None
        ].astype(policy.dtype)
        weight = dtype(nll if loss == "cpo" else 1)
        value = value - weight * (policy * counted).sum() / counted.sum()
        gradient = gradient - weight * counted / counted.sum()
    return {"loss": float(value), "gradient": gradient}


def kto_loss(
    *,
    policy: Any,
    reference: Any,
    mask: Any,
    desirable: Any,
    mismatched: Any,
    beta: Any,
    desirable_weight: Any,
    undesirable_weight: Any,
) -> Any:
    """Return the mean over rows, and its gradient."""
    dtype = policy.dtype.type
    lr = ((policy - reference) * mask).sum(1)
    z0 = np.maximum(0, mismatched.mean())
    sign = np.where(desirable, dtype(1), dtype(-1))
    weight = np.where(desirable, dtype(desirable_weight), dtype(undesirable_weight))
    s = sigmoid(dtype(beta) * sign * (lr - z0))
    slope = -weight * sign * dtype(beta) * s * (1 - s) / len(lr)
    return {"loss": (weight * (1 - s)).mean(), "gradient": slope[:, None] * mask}


def prefer(*, scores: Any) -> Any:
    """Return +1 for the higher of two scores, -1 for the other."""
    first, second = scores[0::2], scores[1::2]
    sign = np.where(first >= second, 1.0, -1.0)
    return {"signs": np.stack([sign, -sign], 1).reshape(-1)}


def best_of_n(*, scores: Any, group_size: Any) -> Any:
    """Return the row of each group's highest score."""
    best = scores.reshape(-1, group_size).argmax(1)
    return {"rows": best + group_size * np.arange(len(best))}


def winner_loss(*, policy: Any, mask: Any, scores: Any, group_size: Any, parts: Any) -> Any:
    """Return the sum of what each part adds to the mean over prompts, and its gradient."""
    rows = best_of_n(scores=scores, group_size=group_size)["rows"]
    weights = np.zeros_like(policy)
    weights[rows] = mask[rows] / mask[rows].sum(1, keepdims=True) / len(rows)
    loss, start = policy.dtype.type(0), 0
    for size in parts:
        part = slice(start, start + size)
        loss = loss - (weights[part] * policy[part]).sum()
        start += size
    return {"loss": loss, "gradient": -weights}


OPS: dict[str, Any] = {
    "preference_loss": preference_loss,
    "kto_loss": kto_loss,
    "prefer": prefer,
    "best_of_n": best_of_n,
    "winner_loss": winner_loss,
}
