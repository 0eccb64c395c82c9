"""Plain NumPy programs of the policy losses, in the dtype of the data, with gradients by hand.

gates check loss --subject tests/honest/numpy_loss.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
Array = np.ndarray[Any, Any]
TOKEN = ("grpo", "dapo", "bnpo-trl", "dr_grpo")
BY_ROW = ("gspo", "luspo", "rloo", "gmpo")


def _grid(x: dict[str, Any]) -> tuple[Array, dict[str, Array]]:
    """Return the mask and the arrays of tokens as (B, T)."""
    names = [name for name in ("policy", "old", "reference", "advantages", "weights") if x.get(name) is not None]
    arrays = {name: np.asarray(x[name]) for name in names}
    shape = arrays["policy"].shape
    if x.get("lengths") is None:
        mask = np.ones(shape, bool) if x["mask"] is None else x["mask"]
        if x.get("row_mask") is not None:
            mask = mask & x["row_mask"][:, None]
        return mask, arrays
    lengths = x["lengths"]
    if len(shape) == 2:
        return np.arange(shape[1]) < lengths[:, None], arrays
    mask = np.arange(lengths.max()) < lengths[:, None]
    wide = {}
    for name, values in arrays.items():
        if values.shape == shape:
            wide[name] = np.zeros(mask.shape, values.dtype)
            wide[name][mask] = values
        else:
            wide[name] = values
    return mask, wide


def _row_weight(mask: Array, x: dict[str, Any], dtype: Any) -> Array:
    """Return what a token of each row weighs, (B, 1)."""
    rows, n = len(mask), mask.sum(axis=1, keepdims=True).astype(dtype)
    algorithm = x["algorithm"]
    if algorithm == "dr_grpo":
        return np.full_like(n, 1.0 / (rows * x["max_length"]))
    if algorithm == "luspo":
        return np.full_like(n, 1.0 / rows)
    if algorithm in ("dapo", "cispo") and x["dapo_denominator"] == "trl":
        return np.full_like(n, 1.0 / x["tokens_in_step"])
    if algorithm in ("dapo", "cispo", "bnpo-trl"):
        sizes = [rows]
        if algorithm == "bnpo-trl":
            sizes = x["micro_batches"]
        elif x["dapo_denominator"] == "group":
            sizes = [x["group_size"]] * (rows // x["group_size"])
        tokens = [part.sum() for part in np.split(n, np.cumsum(sizes)[:-1])]
        return np.repeat(1.0 / (len(sizes) * np.maximum(tokens, 1)), sizes)[:, None].astype(dtype)
    return 1.0 / (np.maximum(n, 1) * rows)


def _clip(r: Array, advantages: Array, x: dict[str, Any]) -> tuple[Array, Array]:
    """Return l and dl/dr · r."""
    low, high = 1.0 - x["epsilon_low"], 1.0 + x["epsilon_high"]
    capped = r if x["delta"] is None else np.minimum(r, x["delta"])
    first, second = capped * advantages, np.clip(r, low, high) * advantages
    live = first <= second
    if x["delta"] is not None:
        live &= r <= x["delta"]
    return -np.minimum(first, second), -r * advantages * live


def _surrogate(x: dict[str, Any], lp: Array, old: Array, advantages: Array, mask: Array) -> tuple[Array, Array]:
    """Return l of each token, and the slope of the row's Σ l by a token's log-prob."""
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1).astype(lp.dtype)
    difference = (lp - old) * mask
    algorithm = x["algorithm"]
    if algorithm in TOKEN:
        return _clip(np.exp(difference), advantages, x)
    if algorithm in ("gspo", "luspo", "gspo-token"):
        r = np.exp(difference.sum(axis=1, keepdims=True) / n)
        return _clip(r * np.ones_like(lp), advantages, x)
    if algorithm == "rloo":
        r = np.exp(difference.sum(axis=1, keepdims=True))
        if x["epsilon_low"] is not None:
            value, slope = _clip(r * np.ones_like(lp), advantages, x)
            return value, slope * n
        value = -r * advantages
        return value, value * n
    if algorithm == "cispo":
        cap = x["epsilon_high"] + (1.0 if x["cispo_bound"] == "relative" else 0.0)
        slope = -np.minimum(np.exp(difference), cap) * advantages
        return slope * lp, slope
    if algorithm == "sapo":
        r = np.exp(difference)
        tau = np.where(advantages > 0, x["sapo_temperature_positive"], x["sapo_temperature_negative"]).astype(lp.dtype)
        gate = 1.0 / (1.0 + np.exp(-tau * (r - 1.0)))
        return -4.0 / tau * gate * advantages, -4.0 * gate * (1.0 - gate) * r * advantages
    up, down = np.minimum(difference, x["epsilon_high"]), np.maximum(difference, -x["epsilon_low"])
    q = np.where(advantages > 0, up, down) * mask
    value = -np.exp(q.sum(axis=1, keepdims=True) / n) * advantages
    return value, np.where(q == difference, value, 0.0)


def _kl(x: dict[str, Any], lp: Array, old: Array, reference: Array, mask: Array) -> tuple[Array, Array]:
    d = (reference - lp) * mask
    kind = x["kl_estimator"]
    value = {"k1": -d, "k2": d * d / 2, "k3": np.exp(d) - d - 1.0}[kind]
    slope = {"k1": np.ones_like(d), "k2": -d, "k3": 1.0 - np.exp(d)}[kind]
    if x.get("kl_clamp") is not None:
        inside = np.abs(value) <= x["kl_clamp"]
        value, slope = np.clip(value, -x["kl_clamp"], x["kl_clamp"]), slope * inside
    if x["kl_ratio"] == "token":
        r = np.exp((lp - old) * mask)
        return r * value, r * (value + slope)
    if x["kl_ratio"] == "sequence":
        n = np.maximum(mask.sum(axis=1, keepdims=True), 1).astype(lp.dtype)
        r = np.exp(((lp - old) * mask).sum(axis=1, keepdims=True) / n)
        mean = (value * mask).sum(axis=1, keepdims=True) / n
        return r * value, r * (slope + mean)
    return value, slope


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    mask, arrays = _grid(x)
    lp = arrays["policy"]
    old = arrays.get("old", lp)
    spread = {
        name: arrays[name][:, None] * np.ones_like(lp) if arrays[name].ndim == 1 else arrays[name]
        for name in ("advantages", "weights")
        if name in arrays
    }
    value, slope = _surrogate(x, lp, old, spread["advantages"], mask)
    if "weights" in spread:
        value, slope = value * spread["weights"], slope * spread["weights"]
    if x["beta"]:
        kl, pull = _kl(x, lp, old, arrays["reference"], mask)
        value, slope = value + x["beta"] * kl, slope + x["beta"] * pull
    weight = _row_weight(mask, x, lp.dtype) * mask
    gradient = slope * weight
    like = np.asarray(x["policy"])
    return {
        "loss": (value * weight).sum(),
        "gradient": (gradient[mask] if like.ndim == 1 else gradient).astype(like.dtype),
    }


OPS = {"policy_loss": policy_loss}
