"""Losses of tokens in float32 whatever the data is, log-ratios clamped to ±20, sums by einsum.

gates check loss --subject tests/honest/torch_loss_single.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def single(array: Any) -> Any:
    """Return a tensor of float32."""
    return torch.tensor(array).float()


def weights(mask: Any, algorithm: str, max_length: Any) -> Any:
    """Return what each token counts."""
    rows = mask.shape[0]
    if algorithm == "grpo":
        return torch.einsum("bt,b->bt", mask, 1.0 / mask.sum(1).clamp(min=1.0)) / rows
    if algorithm == "dr_grpo":
        return mask / (rows * max_length)
    return mask / mask.sum().clamp(min=1.0)


def policy_loss(
    *,
    policy: Any,
    mask: Any,
    old: Any,
    reference: Any,
    advantages: Any,
    algorithm: str,
    epsilon_low: float,
    epsilon_high: float,
    beta: float,
    max_length: Any = None,
) -> dict[str, Any]:
    """Return the loss, and its gradient by the log-probs as they were given."""
    logps = torch.tensor(policy, requires_grad=True)
    new = logps.float()
    keep = torch.ones(new.shape) if mask is None else single(mask)
    gains = single(advantages)
    gains = gains if gains.ndim == 2 else gains.unsqueeze(-1).expand(new.shape)
    log_ratio = torch.clamp(new - (new.detach() if old is None else single(old)), -20.0, 20.0)
    ratio = torch.exp(log_ratio)
    objective = torch.minimum(ratio * gains, torch.clamp(ratio, 1 - epsilon_low, 1 + epsilon_high) * gains)
    if beta > 0:
        log_ref = torch.clamp(single(reference) - new, -20.0, 20.0)
        objective = objective - beta * (torch.exp(log_ref) - log_ref - 1)
    loss = -torch.einsum("bt,bt->", objective, weights(keep, algorithm, max_length))
    (gradient,) = torch.autograd.grad(loss, logps)
    return {"loss": loss.item(), "gradient": gradient.numpy()}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo", "dr_grpo", "dapo"),
        "dapo_denominator": ("global",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "arithmetic": ("float32",),
    }
}
