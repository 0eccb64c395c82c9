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
ARRAYS = ("policy", "old", "reference", "advantages", "weights")
CLIPS = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}
DEFAULTS = {
    "cispo_bound": "relative",
    "sapo_temperature_positive": 1.0,
    "sapo_temperature_negative": 1.05,
    "kl_ratio": "none",
    "kl_estimator": "k3",
    "dapo_denominator": "global",
    "delta": None,
    "mask": None,
}


def _grid(x: dict[str, Any]) -> tuple[Array, dict[str, Array]]:
    """Return the mask and the arrays of tokens as (B, T)."""
    arrays = {name: np.asarray(x[name]) for name in ARRAYS if x.get(name) is not None}
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


def _surrogate(x: dict[str, Any], lp: Array, old: Array, advantages: Array, mask: Array) -> tuple[Array, Array]:  # noqa: PLR0911  one for each algorithm
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
    value, slope = _terms(x, mask, arrays)
    weight = _row_weight(mask, x, arrays["policy"].dtype) * mask
    gradient = slope * weight
    like = np.asarray(x["policy"])
    return {
        "loss": (value * weight).sum(),
        "gradient": (gradient[mask] if like.ndim == 1 else gradient).astype(like.dtype),
    }


def _terms(x: dict[str, Any], mask: Array, arrays: dict[str, Array]) -> tuple[Array, Array]:
    """Return the loss of each token and its slope, before the row's weight."""
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
    return value, slope


def policy_loss_in_parts(*, parts: list[int], **x: Any) -> dict[str, Any]:
    """Add up micro-batches: a token weighs what it weighs in the step."""
    rows, dtype = sum(parts), x["policy"].dtype
    weight = _row_weight(x["mask"], x, dtype)
    total, gradients, end = dtype.type(0.0), [], 0
    for size in parts:
        start, end = end, end + size
        own = {k: v[start:end] if isinstance(v, np.ndarray) and len(v) == rows else v for k, v in x.items()}
        value, slope = _terms(own, own["mask"], {k: own[k] for k in ARRAYS if own.get(k) is not None})
        total += (value * weight[start:end] * own["mask"]).sum()
        gradients.append(slope * weight[start:end] * own["mask"])
    return {"loss": total, "gradient": np.concatenate(gradients)}


def loss_of_completions(**x: Any) -> dict[str, Any]:
    """Mask what was cut off."""
    lengths = np.where(x["ended"] | (not x["mask_truncated"]), x["lengths"], 0)
    rows, size = len(lengths), x.pop("micro_batch_rows")
    mask = np.arange(x["policy"].shape[1]) < lengths[:, None]
    sizes = [min(size, rows - start) for start in range(0, rows, size)]
    given = {"lengths": None, "mask": mask, "tokens_in_step": float(mask.sum()), "micro_batches": sizes}
    return policy_loss(**{**DEFAULTS, **x, **given})


def loss_from_logits(*, logits: Any, ids: Any, prompt_lengths: Any, lengths: Any, temperature: float, **x: Any) -> Any:
    """Score the completions; the gradient by the chain rule."""
    shifted = logits / temperature - (logits / temperature).max(axis=-1, keepdims=True)
    scores = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    width = int(lengths.max())
    mask = np.arange(width) < lengths[:, None]
    rows, slots = np.nonzero(mask)
    at = prompt_lengths[rows] - 1 + slots
    tokens = ids[rows, at + 1]
    policy = np.zeros(mask.shape, logits.dtype)
    policy[mask] = scores[rows, at, tokens]
    found = policy_loss(**{**DEFAULTS, **x, "policy": policy, "mask": mask, "lengths": None})
    gradient = np.zeros_like(logits)
    gradient[rows, at] = -np.exp(scores[rows, at])
    gradient[rows, at, tokens] += 1.0
    gradient[rows, at] *= found["gradient"][mask][:, None] / temperature
    return {"loss": found["loss"], "gradient": gradient.astype(logits.dtype), "logprobs": policy}


def rewarded_loss(**x: Any) -> dict[str, Any]:
    """RLOO with the KL in the reward."""
    size = x["group_size"]
    kl = ((x["old"] - x["reference"]) * x["mask"]).sum(axis=1)
    rewards = (x["rewards"].astype(np.float32) - x["beta"] * kl).reshape(-1, size)
    advantages = ((rewards - rewards.mean(axis=1, keepdims=True)) * (size / (size - 1))).reshape(-1)
    given = {"algorithm": "rloo", "beta": 0.0, "epsilon_low": None, "lengths": None, "advantages": advantages}
    return {**policy_loss(**{**x, **given}), "advantages": advantages}


def _correction(x: dict[str, Any], old: Array) -> Array:
    mask = x["mask"]
    if x["correction"] is None:
        return np.ones(mask.shape, np.float32)
    difference = old - x["sampling"]
    if x["correction_level"] == "seq_sum":
        difference = (difference * mask).sum(axis=1, keepdims=True) * np.ones_like(difference)
    r, low, high = np.exp(difference), x["correction_low"] or 0.0, x["correction_high"]
    return np.clip(r, low, high) if x["correction"] == "tis" else np.where((r >= low) & (r <= high), r, 0.0)


def _weighted_by_token(x: dict[str, Any], weights: Array) -> dict[str, Any]:
    """Return a loss whose tokens have weights, also where its ratio is a row's."""
    mask, arrays = x["mask"], {k: x[k] for k in ARRAYS if x.get(k) is not None}
    lp, old = arrays["policy"], arrays.get("old", arrays["policy"])
    advantages, n = arrays["advantages"][:, None], np.maximum(mask.sum(axis=1, keepdims=True), 1)
    value, slope = _surrogate(x, lp, old, advantages * np.ones_like(lp), mask)
    if x["algorithm"] in BY_ROW:
        share = (weights * mask).sum(axis=1, keepdims=True) / n
        value, slope = value * share, slope * share
    else:
        value, slope = value * weights, slope * weights
    if x["beta"]:
        kl, pull = _kl(x, lp, old, arrays["reference"], mask)
        value, slope = value + x["beta"] * kl, slope + x["beta"] * pull
    weight = _row_weight(mask, x, lp.dtype) * mask
    return {"loss": (value * weight).sum(), "gradient": (slope * weight).astype(lp.dtype)}


def loss_with_options(**x: Any) -> dict[str, Any]:
    """Corrections, the top-entropy mask, and the bonus."""
    mask, entropy = x["mask"], x["entropy"]
    top = mask & (entropy >= np.quantile(entropy[mask], 1.0 - x["entropy_share"]))
    low, high = CLIPS[x["algorithm"]]
    x = {**DEFAULTS, **x, "epsilon_low": low, "epsilon_high": high}
    found = _weighted_by_token(x, _correction(x, x["old"]) * top)
    bonus = x["entropy_bonus"] * entropy[top].sum() / top.sum()
    pull = np.where(top, -x["entropy_bonus"] / top.sum(), 0.0).astype(entropy.dtype)
    return {"loss": found["loss"] - bonus, "gradient": found["gradient"], "entropy_gradient": pull}


def loss_constants(**x: Any) -> dict[str, Any]:
    """Everything but the policy is a constant."""
    low, high = CLIPS.get(x["algorithm"], (0.2, 0.2))
    x = {**DEFAULTS, **x, "epsilon_low": low, "epsilon_high": high}
    found = _weighted_by_token(x, _correction(x, x["policy"] if x["old"] is None else x["old"]))
    names = ("old_gradient", "reference_gradient", "sampling_gradient")
    return {**found, **{name: np.zeros_like(x["policy"]) for name in names}}


def keep_groups(*, rewards: Any, weights: Any, group_size: int, convention: str, accuracy: int) -> dict[str, Any]:
    """Keep a group whose rewards differ."""
    scores = rewards[:, accuracy] if convention == "accuracy" else rewards @ weights
    return {"keep": np.ptp(scores.reshape(-1, group_size), axis=1) > 0}


def overlong_penalty(*, lengths: Any, limit: int, buffer: int) -> dict[str, Any]:
    """A slope of length `buffer` to −1."""
    return {"penalty": np.clip((limit - buffer - lengths) / buffer, -1.0, 0.0)}


OPS = {
    function.__name__: function
    for function in (
        policy_loss,
        policy_loss_in_parts,
        loss_of_completions,
        loss_from_logits,
        rewarded_loss,
        loss_with_options,
        loss_constants,
        keep_groups,
        overlong_penalty,
    )
}
ALGORITHMS = ("grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "gspo-token", "rloo", "cispo", "sapo", "gmpo", "luspo")
CONVENTIONS = {
    "policy_loss": {"algorithm": ALGORITHMS, "clipped": (False, True), "kl_clamp": (None, 10.0)},
    "loss_of_completions": {"algorithm": ALGORITHMS},
    "loss_from_logits": {"algorithm": tuple(name for name in ALGORITHMS if name != "gspo-token")},  # GSPO by rows
}
