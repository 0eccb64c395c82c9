"""A policy loss put together from a ratio, a bound, an aggregation and a KL in PyTorch, with autograd's gradients.

gates check loss --subject tests/honest/torch_loss_axes.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)
Tensor = torch.Tensor


def _row_sum(values: Tensor, mask: Tensor) -> Tensor:
    return values.masked_fill(~mask, 0).sum(1, keepdim=True)


def _row_mean(values: Tensor, mask: Tensor) -> Tensor:
    return _row_sum(values, mask) / mask.sum(1, keepdim=True).clamp(min=1)


def _by_sign(condition: Tensor, if_true: float, if_false: float, like: Tensor) -> Tensor:
    return torch.where(condition, torch.full_like(like, if_true), torch.full_like(like, if_false))


RATIOS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "token": lambda _lp, d, _mask: d,
    "seq_mean": lambda _lp, d, mask: _row_mean(d, mask).expand_as(d),
    "seq_mean_token": lambda lp, d, mask: _row_mean(d, mask).detach() + lp - lp.detach(),
    "seq_sum": lambda _lp, d, mask: _row_sum(d, mask).expand_as(d),
}


def clip(_lp: Tensor, log_ratio: Tensor, a: Tensor, x: dict[str, Any]) -> Tensor:
    """PPO's clip; δ is a second bound."""
    ratio = log_ratio.exp()
    bounded = ratio.clamp(1 - x["epsilon_low"], 1 + x["epsilon_high"])
    free = ratio if x["delta"] is None else ratio.clamp(max=x["delta"])
    return torch.max(-free * a, -bounded * a)


def cap(lp: Tensor, log_ratio: Tensor, a: Tensor, x: dict[str, Any]) -> Tensor:
    """CISPO: a bounded ratio is a weight of A log π."""
    high = x["epsilon_high"] + (x.get("cispo_bound") != "absolute")
    low = None if x.get("epsilon_low") is None else 1 - x["epsilon_low"]
    return -log_ratio.exp().clamp(low, high).detach() * a * lp


def gate(_lp: Tensor, log_ratio: Tensor, a: Tensor, x: dict[str, Any]) -> Tensor:
    """SAPO's soft gate."""
    tau = _by_sign(a > 0, x["sapo_temperature_positive"], x["sapo_temperature_negative"], a)
    return -(4 / tau) * torch.sigmoid(tau * (log_ratio.exp() - 1)) * a


def taper(lp: Tensor, log_ratio: Tensor, a: Tensor, x: dict[str, Any]) -> Tensor:
    """VESPO: a weight of A log π that falls off on both sides."""
    k = _by_sign(a >= 0, x["vespo_k_positive"], x["vespo_k_negative"], a)
    decay = _by_sign(a >= 0, x["vespo_lambda_positive"], x["vespo_lambda_negative"], a)
    with torch.no_grad():
        phi = torch.exp(k * log_ratio - decay * torch.expm1(log_ratio))
    return -phi * a * lp


BOUNDS = {
    "clip": clip,
    "cap": cap,
    "gate": gate,
    "taper": taper,
    "none": lambda _lp, log_ratio, a, _x: -log_ratio.exp() * a,
}


def surrogate(level: str, bound: str, lp: Tensor, d: Tensor, a: Tensor, mask: Tensor, x: dict[str, Any]) -> Tensor:
    """Return l of each token."""
    if level == "none":
        return -a * lp
    if bound == "log-clip":
        d = torch.where(a > 0, d.clamp(max=x["epsilon_high"]), d.clamp(min=-x["epsilon_low"]))
        bound = "none"
    return BOUNDS[bound](lp, RATIOS[level](lp, d, mask), a, x)


def divergence(lp: Tensor, d: Tensor, reference: Tensor, mask: Tensor, x: dict[str, Any]) -> Tensor:
    """Return the KL estimate of each token, by its ratio."""
    gap = reference - lp
    kl = {"k1": lambda: -gap, "k2": lambda: gap.pow(2) / 2, "k3": lambda: torch.expm1(gap) - gap}[x["kl_estimator"]]()
    if x.get("kl_clamp") is not None:
        kl = torch.clamp(kl, min=-x["kl_clamp"], max=x["kl_clamp"])
    if x["kl_ratio"] == "token":
        kl = kl * d.exp()
    elif x["kl_ratio"] == "sequence":
        kl = kl * _row_mean(d, mask).exp()
    return kl


def aggregate(how: str, losses: Tensor, mask: Tensor, x: dict[str, Any]) -> Tensor:
    """Return the loss of the batch."""
    rows, width = mask.shape
    total = losses.masked_fill(~mask, 0)
    if how == "row-mean":
        return _row_mean(losses, mask).mean()
    if how == "row-sum":
        return total.sum(1).mean()
    if how == "constant":
        return total.sum() / (rows * x["max_length"])
    if how == "width":
        return total.sum() / (rows * width)
    if how == "token-mean" and x["dapo_denominator"] == "trl":
        return total.sum() / x["tokens_in_step"]
    sizes = [rows]
    if how == "micro-batch":
        sizes = x["micro_batches"]
    elif x["dapo_denominator"] == "group":
        sizes = [x["group_size"]] * (rows // x["group_size"])
    pairs = zip(total.split(sizes), mask.split(sizes), strict=True)
    return sum(part.sum() / kept.sum().clamp(min=1) for part, kept in pairs) / len(sizes)


PRESETS = {
    "grpo": ("token", "clip", "row-mean"),
    "dapo": ("token", "clip", "token-mean"),
    "bnpo-trl": ("token", "clip", "micro-batch"),
    "dr_grpo": ("token", "clip", "constant"),
    "gspo": ("seq_mean", "clip", "row-mean"),
    "gspo-token": ("seq_mean_token", "clip", "row-mean"),
    "luspo": ("seq_mean", "clip", "row-sum"),
    "rloo": ("seq_sum", "none", "row-mean"),
    "cispo": ("token", "cap", "token-mean"),
    "sapo": ("token", "gate", "row-mean"),
    "gmpo": ("seq_mean", "log-clip", "row-mean"),
    "reinforce": ("none", "none", "row-mean"),
    "vespo": ("seq_sum", "taper", "token-mean"),
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    level, bound, how = PRESETS[x["algorithm"]]
    if x["algorithm"] == "rloo" and x["epsilon_low"] is not None:
        bound = "clip"
    mask = torch.tensor(np.ones(x["policy"].shape, bool) if x["mask"] is None else x["mask"])

    def grid(values: Tensor) -> Tensor:
        return values[:, None].expand(mask.shape) if values.ndim == 1 else values

    lp = torch.tensor(x["policy"], requires_grad=True)
    old = lp.detach() if x["old"] is None else torch.tensor(x["old"])
    losses = surrogate(
        x.get("ratio_level") or level,
        x.get("bound") or bound,
        lp,
        lp - old,
        grid(torch.tensor(x["advantages"])),
        mask,
        x,
    )
    if x["weights"] is not None:
        losses = grid(torch.tensor(x["weights"])) * losses
    if x["beta"]:
        losses = losses + x["beta"] * divergence(lp, lp - old, torch.tensor(x["reference"]), mask, x)
    loss = aggregate(x.get("aggregation") or how, losses, mask, x)
    loss.backward()
    return {"loss": loss.item(), "gradient": lp.grad.numpy()}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": tuple(PRESETS),
        "ratio_level": (*RATIOS, "none"),
        "bound": (*BOUNDS, "log-clip"),
        "aggregation": ("row-mean", "row-sum", "token-mean", "micro-batch", "constant", "width"),
        "lower_bound": (True, False),
        "clipped": (True, False),
        "kl_clamp": (None, 10.0),
        "rows": ("mask", "holes", "all"),
    }
}
