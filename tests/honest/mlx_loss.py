"""Plain MLX programs of the losses, in the dtype of the data, with `mx.value_and_grad`'s gradients.

gates check loss --subject tests/honest/mlx_loss.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS = {"mlx": mx.__version__}
TOKEN = ("grpo", "dapo", "bnpo-trl", "dr_grpo")
CLIPS = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}
DEFAULTS = {"cispo_bound": "relative", "sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.05}


def _array(x: Any) -> mx.array:
    x = np.ascontiguousarray(x)
    return mx.array(x)


def _grid(x: dict[str, Any]) -> np.ndarray[Any, Any]:
    shape = np.shape(x["policy"])
    if x.get("lengths") is not None:
        width = int(x["lengths"].max()) if len(shape) == 1 else shape[1]
        return np.arange(width) < x["lengths"][:, None]
    mask = np.ones(shape, bool) if x.get("mask") is None else x["mask"]
    return mask & x["row_mask"][:, None] if x.get("row_mask") is not None else mask


def _wide(values: Any, mask: mx.array) -> mx.array:
    """Return numbers of tokens as (B, T), those of rows as (B, 1)."""
    one = values if isinstance(values, mx.array) else _array(values)
    if one.shape == mask.shape:
        return one
    if one.shape == mask.shape[:1]:
        return one[:, None]
    places = np.maximum(np.cumsum(np.array(mask).ravel()) - 1, 0).reshape(mask.shape)
    return mx.where(mask, one[mx.array(places)], 0.0)


def ppo(r: mx.array, advantages: mx.array, x: dict[str, Any]) -> mx.array:
    clipped = mx.clip(r, 1 - x["epsilon_low"], 1 + x["epsilon_high"])
    if x.get("delta") is not None:
        r = mx.minimum(r, x["delta"])
    return -mx.minimum(r * advantages, clipped * advantages)


def surrogate(lp: mx.array, old: mx.array, advantages: mx.array, mask: mx.array, x: dict[str, Any]) -> mx.array:  # noqa: PLR0911  one for each algorithm
    algorithm, log_ratio = x["algorithm"], lp - old
    n = mx.maximum(mask.sum(-1, keepdims=True), 1).astype(lp.dtype)
    if algorithm in TOKEN:
        return ppo(mx.exp(log_ratio), advantages, x)
    if algorithm in ("gspo", "luspo"):
        return ppo(mx.exp((log_ratio * mask).sum(-1, keepdims=True) / n), advantages, x)
    if algorithm == "gspo-token":
        level = mx.stop_gradient((log_ratio * mask).sum(-1, keepdims=True) / n)
        return ppo(mx.exp(lp - mx.stop_gradient(lp) + level), advantages, x)
    if algorithm == "rloo":
        r = mx.exp((log_ratio * mask).sum(-1, keepdims=True))
        return ppo(r, advantages, x) if x["epsilon_low"] is not None else -r * advantages
    if algorithm == "cispo":
        cap = x["epsilon_high"] + (1.0 if x["cispo_bound"] == "relative" else 0.0)
        return -mx.stop_gradient(mx.minimum(mx.exp(log_ratio), cap)) * advantages * lp
    if algorithm == "sapo":
        ones = mx.ones_like(advantages)
        tau = mx.where(advantages > 0, x["sapo_temperature_positive"] * ones, x["sapo_temperature_negative"] * ones)
        return -mx.sigmoid(tau * (mx.exp(log_ratio) - 1)) * 4 / tau * advantages
    q = mx.where(advantages > 0, mx.minimum(log_ratio, x["epsilon_high"]), mx.maximum(log_ratio, -x["epsilon_low"]))
    return -mx.exp((q * mask).sum(-1, keepdims=True) / n) * advantages


def divergence(lp: mx.array, old: mx.array, ref: mx.array, mask: mx.array, x: dict[str, Any]) -> mx.array:
    d = ref - lp
    kl = {"k1": -d, "k2": d.square() / 2, "k3": mx.exp(d) - d - 1}[x.get("kl_estimator") or "k3"]
    if x.get("kl_clamp") is not None:
        kl = mx.clip(kl, -x["kl_clamp"], x["kl_clamp"])
    if x["kl_ratio"] == "token":
        kl = kl * mx.exp(lp - old)
    if x["kl_ratio"] == "sequence":
        n = mx.maximum(mask.sum(-1, keepdims=True), 1).astype(lp.dtype)
        kl = kl * mx.exp(((lp - old) * mask).sum(-1, keepdims=True) / n)
    return kl


def aggregate(losses: mx.array, mask: mx.array, x: dict[str, Any]) -> mx.array:
    algorithm, rows = x["algorithm"], len(mask)
    losses = losses * mask
    n = mx.maximum(mask.sum(-1), 1).astype(losses.dtype)
    if algorithm == "dr_grpo":
        return losses.sum() / (rows * x["max_length"])
    if algorithm == "luspo":
        return losses.sum(-1).mean()
    if algorithm in ("dapo", "cispo") and x["dapo_denominator"] == "trl":
        return losses.sum() / x["tokens_in_step"]
    if algorithm in ("dapo", "cispo", "bnpo-trl"):
        sizes = [rows]
        if algorithm == "bnpo-trl":
            sizes = x["micro_batches"]
        elif x["dapo_denominator"] == "group":
            sizes = [x["group_size"]] * (rows // x["group_size"])
        ends = np.cumsum(sizes)
        spans = [slice(int(end - size), int(end)) for end, size in zip(ends, sizes, strict=True)]
        tokens = [mx.maximum(mask[span].sum(), 1).astype(losses.dtype) for span in spans]
        return mx.stack([losses[span].sum() / count for span, count in zip(spans, tokens, strict=True)]).mean()
    return (losses.sum(-1) / n).mean()


def forward(lp: mx.array, mask: mx.array, x: dict[str, Any]) -> mx.array:
    """The loss of log-probs (B, T)."""
    old = mx.stop_gradient(lp) if x["old"] is None else _wide(x["old"], mask)
    losses = surrogate(lp, old, _wide(x["advantages"], mask), mask, x)
    if x.get("weights") is not None:
        losses = losses * _wide(x["weights"], mask)
    if x["beta"]:
        losses = losses + x["beta"] * divergence(lp, old, _wide(x["reference"], mask), mask, x)
    return aggregate(mx.broadcast_to(losses, mask.shape), mask, x)


def _differentiate(function: Callable[[mx.array], mx.array], at: Any) -> dict[str, Any]:
    loss, gradient = mx.value_and_grad(function)(_array(at))
    return {"loss": loss.item(), "gradient": np.array(gradient)}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    mask = mx.array(_grid(x))
    return _differentiate(lambda lp: forward(_wide(lp, mask), mask, x), x["policy"])


def loss_of_completions(**x: Any) -> dict[str, Any]:
    """Mask what was cut off."""
    lengths = np.where(x["ended"] | (not x["mask_truncated"]), x["lengths"], 0)
    rows = len(lengths)
    size = x.pop("micro_batch_rows")
    mask = np.arange(x["policy"].shape[1]) < lengths[:, None]
    x |= {"lengths": None, "mask": mask, "tokens_in_step": float(mask.sum()), "kl_ratio": "none", **DEFAULTS}
    return policy_loss(**x, micro_batches=[min(size, rows - start) for start in range(0, rows, size)])


def loss_from_logits(*, logits: Any, ids: Any, prompt_lengths: Any, lengths: Any, temperature: float, **x: Any) -> Any:
    """Score the completions and differentiate by the logits."""
    width = int(np.max(lengths))
    mask = mx.array(np.arange(width) < lengths[:, None])
    at = mx.array(np.minimum(prompt_lengths[:, None] - 1 + np.arange(width), ids.shape[1] - 2))
    chosen = mx.array(ids)[:, 1:, None]

    def scores(variable: mx.array) -> mx.array:
        scaled = variable / temperature
        picked = mx.take_along_axis(scaled[:, :-1], chosen, axis=-1)[..., 0]
        return mx.take_along_axis(picked - mx.logsumexp(scaled, axis=-1)[:, :-1], at, axis=1)

    found = _differentiate(lambda variable: forward(scores(variable), mask, x), logits)
    return {**found, "logprobs": np.array(scores(_array(logits)))}


def rewarded_loss(**x: Any) -> dict[str, Any]:
    """RLOO with the KL in the reward."""
    mask, size = mx.array(x["mask"]), x["group_size"]
    kl = ((_array(x["old"]) - _array(x["reference"])) * mask).sum(-1)
    rewards = (mx.array(x["rewards"].astype(np.float32)) - x["beta"] * kl).reshape(-1, size)
    advantages = ((rewards - rewards.mean(1, keepdims=True)) * (size / (size - 1))).reshape(-1)
    given = {"algorithm": "rloo", "beta": 0.0, "epsilon_low": None, "advantages": np.array(advantages)}
    return {**policy_loss(**{**x, **given}), "advantages": np.array(advantages)}


def overlong_penalty(*, lengths: Any, limit: int, buffer: int) -> dict[str, Any]:
    """A slope of length `buffer` to −1."""
    over = mx.array(lengths) - (limit - buffer)
    return {"penalty": np.array(-mx.clip(over / buffer, 0.0, 1.0))}


OPS = {
    function.__name__: function
    for function in (policy_loss, loss_of_completions, loss_from_logits, rewarded_loss, overlong_penalty)
}
ALGORITHMS = ("grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "gspo-token", "rloo", "cispo", "sapo", "gmpo", "luspo")
CONVENTIONS = {  # mx.exp of float64 has the error of float32 (MLX 0.32)
    "policy_loss": {
        "algorithm": ALGORITHMS,
        "dtype": ("float32",),
        "clipped": (False, True),
        "kl_clamp": (None, 10.0),
    },
    "loss_of_completions": {"algorithm": ALGORITHMS},
    "loss_from_logits": {"algorithm": tuple(name for name in ALGORITHMS if name != "gspo-token")},  # GSPO by rows
}
