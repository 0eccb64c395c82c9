"""REINFORCE, REINFORCE++, PPO with a dual clip and VESPO over packed tokens, in the dtype of the data, gradients by hand.

gates check loss --subject tests/honest/numpy_loss_presets.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
Array = np.ndarray[Any, Any]


@dataclass
class Tokens:
    """The tokens that count, one after the other, and the row of each."""

    index: Any
    rows: Array
    count: int

    @classmethod
    def of(cls, x: dict[str, Any]) -> Tokens:
        """Find the tokens of a padded batch or of a flat one."""
        policy, lengths = x["policy"], x["lengths"]
        if policy.ndim == 1:
            return cls(np.arange(policy.size), np.repeat(np.arange(len(lengths)), lengths), len(lengths))
        batch, width = policy.shape
        mask = np.ones((batch, width), bool) if x["mask"] is None else x["mask"]
        if lengths is not None:
            mask = np.arange(width)[None, :] < lengths[:, None]
        if x.get("row_mask") is not None:
            mask = mask & x["row_mask"][:, None]
        index = np.nonzero(mask)
        return cls(index, index[0], batch)

    def pick(self, values: Array) -> Array:
        """Return one number for each token, of numbers of tokens or of rows."""
        return values[self.rows] if values.shape == (self.count,) else values[self.index]

    def sum(self, values: Array) -> Array:
        """Add up each row."""
        total = np.zeros(self.count, values.dtype)
        np.add.at(total, self.rows, values)
        return total

    def lengths(self, dtype: Any) -> Array:
        """Return the tokens of each row, 1 for an empty one."""
        return np.maximum(np.bincount(self.rows, minlength=self.count), 1).astype(dtype)


def reinforce(lp: Array, advantages: Array) -> tuple[Array, Array]:
    """Williams: −A log π, and its slope."""
    return -advantages * lp, -advantages


def clipped(ratio: Array, advantages: Array, x: dict[str, Any]) -> tuple[Array, Array]:
    """PPO's clip, with a second bound δ where the advantage is negative."""
    low, high = 1.0 - x["epsilon_low"], 1.0 + x["epsilon_high"]
    held = np.where(advantages > 0, np.minimum(ratio, high), np.maximum(ratio, low))
    if x["delta"] is not None:
        held = np.where(advantages > 0, held, np.minimum(held, x["delta"]))
    held = held.astype(ratio.dtype)
    return -held * advantages, np.where(held == ratio, -ratio * advantages, 0.0).astype(ratio.dtype)


def vespo(lp: Array, log_ratio: Array, advantages: Array, x: dict[str, Any]) -> tuple[Array, Array]:
    """Weigh A log π by φ(r) = r^k e^{λ(1 − r)} of the whole row, a constant."""
    dtype = lp.dtype
    k = np.where(advantages >= 0, x["vespo_k_positive"], x["vespo_k_negative"]).astype(dtype)
    decay = np.where(advantages >= 0, x["vespo_lambda_positive"], x["vespo_lambda_negative"]).astype(dtype)
    ratio = np.exp(log_ratio)
    slope = -(ratio**k) * np.exp(decay * (1 - ratio)) * advantages
    return slope * lp, slope


def kl(lp: Array, old: Array, reference: Array, tokens: Tokens, x: dict[str, Any]) -> tuple[Array, Array]:
    """Return ρ·k of each token, and the slope of the row's sum."""
    d = reference - lp
    if x["kl_estimator"] == "k1":
        value, slope = -d, np.ones_like(d)
    elif x["kl_estimator"] == "k2":
        value, slope = d * d / 2, -d
    else:
        value, slope = np.expm1(d) - d, -np.expm1(d)
    bound = x.get("kl_clamp")
    if bound is not None:
        slope = np.where(np.abs(value) <= bound, slope, 0.0)
        value = np.clip(value, -bound, bound)
    if x["kl_ratio"] == "token":
        ratio = np.exp(lp - old)
        return ratio * value, ratio * (slope + value)
    if x["kl_ratio"] == "sequence":
        n = tokens.lengths(lp.dtype)
        ratio, mean = np.exp(tokens.sum(lp - old) / n)[tokens.rows], (tokens.sum(value) / n)[tokens.rows]
        return ratio * value, ratio * (slope + mean)
    return value, slope


def token_weight(tokens: Tokens, x: dict[str, Any], dtype: Any) -> Array:
    """Return what each token weighs in the loss."""
    n = tokens.lengths(dtype)
    if x["algorithm"] == "reinforce":
        return (1 / (n * tokens.count))[tokens.rows]
    if x["dapo_denominator"] == "trl":
        return np.full(len(tokens.rows), 1 / x["tokens_in_step"], dtype)
    size = x["group_size"] if x["dapo_denominator"] == "group" else tokens.count
    prompts = np.bincount(tokens.rows // size, minlength=tokens.count // size)
    weight = 1 / (np.maximum(prompts, 1) * len(prompts))
    return weight[tokens.rows // size].astype(dtype)


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    tokens = Tokens.of(x)
    lp = tokens.pick(x["policy"])
    old = lp if x["old"] is None else tokens.pick(x["old"])
    advantages = tokens.pick(x["advantages"])
    if x["algorithm"] == "reinforce":
        value, slope = reinforce(lp, advantages)
    elif x["algorithm"] == "vespo":
        value, slope = vespo(lp, tokens.sum(lp - old)[tokens.rows], advantages, x)
    else:
        value, slope = clipped(np.exp(lp - old), advantages, x)
    if x["weights"] is not None:
        weights = tokens.pick(x["weights"])
        value, slope = weights * value, weights * slope
    if x["beta"]:
        divergence, pull = kl(lp, old, tokens.pick(x["reference"]), tokens, x)
        value, slope = value + x["beta"] * divergence, slope + x["beta"] * pull
    weight = token_weight(tokens, x, lp.dtype)
    gradient = np.zeros_like(x["policy"])
    gradient[tokens.index] = weight * slope
    return {"loss": (weight * value).sum(), "gradient": gradient}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("reinforce", "reinforce++", "ppo", "vespo"),
        "kl_clamp": (None, 10.0),
    }
}
