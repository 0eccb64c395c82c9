"""A policy loss put together from a ratio, a bound, an aggregation and a KL, with one backward pass for all of them.

gates check loss --subject tests/honest/numpy_loss_axes.py

Everything is a function of the logarithm of a ratio, so that the slope by a token's log-prob follows from the ratio alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
Array = np.ndarray[Any, Any]
RATIOS = ("token", "seq_mean", "seq_mean_token", "seq_sum", "none")
BOUNDS = ("clip", "log-clip", "cap", "gate", "taper", "none")
AGGREGATIONS = ("row-mean", "row-sum", "token-mean", "micro-batch", "constant", "width")
PRESETS = {
    "grpo": ("token", "clip", "row-mean"),
    "gspo": ("seq_mean", "clip", "row-mean"),
    "cispo": ("token", "cap", "token-mean"),
    "dr_grpo": ("token", "clip", "constant"),
    "rloo": ("seq_sum", "none", "row-mean"),
    "sapo": ("token", "gate", "row-mean"),
    "gmpo": ("seq_mean", "log-clip", "row-mean"),
    "reinforce": ("none", "none", "row-mean"),
    "vespo": ("seq_sum", "taper", "token-mean"),
}


def _sum(values: Array) -> Array:
    return values.sum(axis=1, keepdims=True) + np.zeros_like(values)


def _mask(x: dict[str, Any]) -> Array:
    policy, lengths = x["policy"], x.get("lengths")
    if policy.ndim == 1:
        return np.arange(lengths.max()) < lengths[:, None]
    mask = np.ones(policy.shape, bool) if x["mask"] is None else x["mask"].copy()
    if lengths is not None:
        mask = np.arange(policy.shape[1]) < lengths[:, None]
    if x.get("row_mask") is not None:
        mask[~x["row_mask"]] = False
    return mask


def _padded(values: Array, mask: Array) -> Array:
    """Return (B, T) with zeros where no token is."""
    grid = np.zeros(mask.shape, values.dtype)
    if values.ndim == 1 and len(values) == len(mask):
        values = np.broadcast_to(values[:, None], mask.shape)
    grid[mask] = values[mask] if values.ndim == 2 else values
    return grid


def _log_ratio(level: str, difference: Array, n: Array) -> Array:
    if level in ("token", "none"):
        return difference
    return _sum(difference) / (1 if level == "seq_sum" else n)


def _to_tokens(level: str, slope: Array, n: Array) -> Array:
    """Return the slope by a token's log-prob of what has the slope `slope` by each token's log-ratio."""
    if level in ("token", "seq_mean_token"):
        return slope
    return _sum(slope) / (n if level == "seq_mean" else 1)


def _bounded(bound: str, log_ratio: Array, lp: Array, a: Array, x: dict[str, Any]) -> tuple[Array, Array, bool]:
    """Return l, its slope, and whether the slope is by the log-ratio or by the log-prob itself."""
    ratio = np.exp(log_ratio)
    positive = a > 0
    if bound == "none":
        return -ratio * a, -ratio * a, True
    if bound == "clip":
        beyond = np.where(positive, ratio > 1 + x["epsilon_high"], ratio < 1 - x["epsilon_low"])
        value = np.where(positive, np.minimum(ratio, 1 + x["epsilon_high"]), np.maximum(ratio, 1 - x["epsilon_low"]))
        if x["delta"] is not None:
            beyond = beyond | (~positive & (ratio > x["delta"]))
            value = np.where(positive, value, np.minimum(value, x["delta"]))
        return -value * a, np.where(beyond, 0, -ratio * a), True
    if bound == "gate":
        tau = np.where(positive, x["sapo_temperature_positive"], x["sapo_temperature_negative"]).astype(lp.dtype)
        sigmoid = 1 / (1 + np.exp(-tau * (ratio - 1)))
        return -4 / tau * sigmoid * a, -4 * sigmoid * (1 - sigmoid) * ratio * a, True
    if bound == "cap":
        cap = x["epsilon_high"] if x.get("cispo_bound") == "absolute" else 1 + x["epsilon_high"]
        weight = np.minimum(ratio, cap)
        if x.get("epsilon_low") is not None:
            weight = np.maximum(weight, 1 - x["epsilon_low"])
    else:
        k = np.where(a >= 0, x["vespo_k_positive"], x["vespo_k_negative"]).astype(lp.dtype)
        decay = np.where(a >= 0, x["vespo_lambda_positive"], x["vespo_lambda_negative"]).astype(lp.dtype)
        weight = np.exp(decay * (1 - ratio) + k * log_ratio)
    return -weight * a * lp, -weight * a, False


def _surrogate(level: str, bound: str, lp: Array, d: Array, a: Array, w: Array, n: Array, x: Any) -> Any:
    """Return w·l of each token and the slope of its row's sum."""
    if level == "none":
        return -w * a * lp, -w * a
    if bound == "log-clip":
        held = np.where(a > 0, np.minimum(d, x["epsilon_high"]), np.maximum(d, -x["epsilon_low"])).astype(lp.dtype)
        value = -w * a * np.exp(_log_ratio(level, held, n))
        return value, np.where(held == d, _to_tokens(level, value, n), 0)
    value, slope, by_ratio = _bounded(bound, _log_ratio(level, d, n), lp, a, x)
    return w * value, _to_tokens(level, w * slope, n) if by_ratio else w * slope


def _divergence(lp: Array, d: Array, reference: Array, n: Array, x: dict[str, Any]) -> tuple[Array, Array]:
    gap = reference - lp
    if x["kl_estimator"] == "k1":
        k, slope = -gap, np.ones_like(gap)
    elif x["kl_estimator"] == "k2":
        k, slope = gap**2 / 2, -gap
    else:
        k, slope = np.exp(gap) - 1 - gap, 1 - np.exp(gap)
    if x.get("kl_clamp") is not None:
        slope = np.where(abs(k) > x["kl_clamp"], 0, slope)
        k = k.clip(-x["kl_clamp"], x["kl_clamp"])
    level = {"token": "token", "sequence": "seq_mean"}.get(x["kl_ratio"])
    if level is None:
        return k, slope
    ratio = np.exp(_log_ratio(level, d, n))
    return ratio * k, ratio * slope + _to_tokens(level, ratio * k, n)


def _weights(aggregation: str, mask: Array, x: dict[str, Any], dtype: Any) -> Array:
    """Return a of each row, (B, 1)."""
    rows, width = mask.shape
    tokens = mask.sum(axis=1).astype(dtype)
    if aggregation == "row-mean":
        a = 1 / np.maximum(tokens, 1) / rows
    elif aggregation == "row-sum":
        a = np.full(rows, 1 / rows)
    elif aggregation == "constant":
        a = np.full(rows, 1 / (rows * x["max_length"]))
    elif aggregation == "width":
        a = np.full(rows, 1 / (rows * width))
    elif aggregation == "token-mean" and x["dapo_denominator"] == "trl":
        a = np.full(rows, 1 / x["tokens_in_step"])
    else:
        parts = [rows]
        if aggregation == "micro-batch":
            parts = x["micro_batches"]
        elif x["dapo_denominator"] == "group":
            parts = [x["group_size"]] * (rows // x["group_size"])
        number = np.repeat(np.arange(len(parts)), parts)
        a = 1 / np.maximum(np.bincount(number, tokens), 1)[number] / len(parts)
    return a[:, None].astype(dtype)


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    level, bound, aggregation = PRESETS[x["algorithm"]]
    if x["algorithm"] == "rloo" and x["epsilon_low"] is not None:
        bound = "clip"
    level, bound = x.get("ratio_level") or level, x.get("bound") or bound
    aggregation = x.get("aggregation") or aggregation
    mask = _mask(x)
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1).astype(x["policy"].dtype)
    lp = _padded(x["policy"], mask)
    d = np.zeros_like(lp) if x["old"] is None else lp - _padded(x["old"], mask)
    w = mask.astype(lp.dtype) if x["weights"] is None else _padded(x["weights"], mask)
    loss, slope = _surrogate(level, bound, lp, d, _padded(x["advantages"], mask), w, n, x)
    if x["beta"]:
        k, pull = _divergence(lp, d, _padded(x["reference"], mask), n, x)
        loss, slope = loss + x["beta"] * k, slope + x["beta"] * pull
    a = _weights(aggregation, mask, x, lp.dtype)
    gradient = np.where(mask, a * slope, 0).astype(lp.dtype)
    value = np.where(mask, a * loss, 0).astype(lp.dtype).sum()
    return {"loss": value, "gradient": gradient[mask] if x["policy"].ndim == 1 else gradient}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": tuple(PRESETS),
        "ratio_level": RATIOS,
        "bound": BOUNDS,
        "aggregation": AGGREGATIONS,
        "lower_bound": (False, True),
        "clipped": (False, True),
        "kl_clamp": (None, 10.0),
    }
}
