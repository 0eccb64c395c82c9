"""REINFORCE, REINFORCE++, PPO with a dual clip and VESPO in PyTorch, in the dtype of the data, with autograd's gradients.

gates check loss --subject tests/honest/torch_loss_presets.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def masked_sum(values: torch.Tensor, mask: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Add up what the mask keeps."""
    kept = torch.where(mask, values, torch.zeros_like(values))
    return kept.sum() if dim is None else kept.sum(dim, keepdim=True)


def masked_mean(values: torch.Tensor, mask: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Return the mean of what the mask keeps, 0 of nothing."""
    count = mask.sum() if dim is None else mask.sum(dim, keepdim=True)
    return masked_sum(values, mask, dim) / count.clamp(min=1)


def pg_loss(lp: torch.Tensor, log_ratio: torch.Tensor, mask: torch.Tensor, a: torch.Tensor, x: Any) -> torch.Tensor:
    """Return the surrogate of each token."""
    if x["algorithm"] == "reinforce":
        return -a * lp
    if x["algorithm"] == "vespo":
        log_w = masked_sum(log_ratio, mask, 1).detach()
        positive = a >= 0
        k = torch.where(positive, x["vespo_k_positive"] + 0 * a, x["vespo_k_negative"] + 0 * a)
        decay = torch.where(positive, x["vespo_lambda_positive"] + 0 * a, x["vespo_lambda_negative"] + 0 * a)
        phi = torch.exp(decay + k * log_w - decay * torch.exp(log_w))
        return -phi * a * lp
    ratio = torch.exp(log_ratio)
    losses = -a * ratio
    clipped = -a * torch.clamp(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"])
    larger = torch.maximum(losses, clipped)
    if x["delta"] is None:
        return larger
    return torch.where(a < 0, torch.minimum(larger, -a * x["delta"]), larger)


def kl_penalty(lp: torch.Tensor, old: torch.Tensor, ref: torch.Tensor, mask: torch.Tensor, x: Any) -> torch.Tensor:
    """Return the estimate of each token, by its ratio."""
    delta = lp - ref
    if x["kl_estimator"] == "k1":
        kl = delta
    elif x["kl_estimator"] == "k2":
        kl = 0.5 * delta**2
    else:
        kl = torch.exp(-delta) - 1 + delta
    if x.get("kl_clamp") is not None:
        kl = kl.clamp(-x["kl_clamp"], x["kl_clamp"])
    if x["kl_ratio"] == "token":
        return torch.exp(lp - old) * kl
    if x["kl_ratio"] == "sequence":
        return torch.exp(masked_mean(lp - old, mask, 1)) * kl
    return kl


def agg_loss(losses: torch.Tensor, mask: torch.Tensor, x: Any) -> torch.Tensor:
    """Return the mean over rows of token means, or the mean over tokens."""
    if x["algorithm"] == "reinforce":
        return masked_mean(losses, mask, 1).mean()
    if x["dapo_denominator"] == "trl":
        return masked_sum(losses, mask) / x["tokens_in_step"]
    if x["dapo_denominator"] == "global":
        return masked_mean(losses, mask)
    prompts = (len(mask) // x["group_size"], x["group_size"] * mask.shape[1])
    return masked_mean(losses.reshape(prompts), mask.reshape(prompts), 1).mean()


def _mask(x: dict[str, Any]) -> torch.Tensor:
    shape = x["policy"].shape
    mask = np.ones(shape, bool) if x["mask"] is None else x["mask"]
    if x["lengths"] is not None:
        width = shape[1] if len(shape) == 2 else int(x["lengths"].max())
        mask = np.arange(width) < x["lengths"][:, None]
    if x.get("row_mask") is not None:
        mask = mask & x["row_mask"][:, None]
    return torch.tensor(mask)


def _padded(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if values.ndim == 2:
        return values
    if len(values) == len(mask):
        return values[:, None].expand(mask.shape)
    return torch.zeros(mask.shape, dtype=values.dtype).masked_scatter(mask, values)


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    mask = _mask(x)
    names = ("old", "reference", "advantages", "weights")
    given = {name: _padded(torch.tensor(x[name]), mask) for name in names if x[name] is not None}
    policy = torch.tensor(x["policy"], requires_grad=True)
    lp = _padded(policy, mask)
    old = given.get("old", lp.detach())
    losses = pg_loss(lp, lp - old, mask, given["advantages"], x)
    if "weights" in given:
        losses = losses * given["weights"]
    if x["beta"]:
        losses = losses + x["beta"] * kl_penalty(lp, old, given["reference"], mask, x)
    loss = agg_loss(losses, mask, x)
    loss.backward()
    return {"loss": loss.item(), "gradient": policy.grad.numpy()}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("reinforce", "reinforce++", "ppo", "vespo"),
        "kl_clamp": (None, 10.0),
    }
}
