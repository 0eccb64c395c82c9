"""Losses of whole sequences: GSPO, GSPO-token and RLOO from one log-weight, as trainers with a level option write them.

gates check loss --subject tests/honest/torch_loss_sequence.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def log_weights(logps: Any, old: Any, mask: Any, algorithm: str) -> Any:
    """Return the log importance weight of each row, or of each token with its own slope."""
    log_ratio = torch.where(mask, logps - old, 0.0)
    if algorithm == "rloo":
        return log_ratio.sum(-1, keepdim=True)
    negative_mean = log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    if algorithm == "gspo":
        return torch.clamp(negative_mean, -20.0, 20.0)
    return torch.clamp(logps - logps.detach() + negative_mean.detach(), max=20.0)


def policy_loss(
    *,
    policy: Any,
    mask: Any,
    old: Any,
    reference: Any,
    advantages: Any,
    algorithm: str,
    epsilon_low: Any = None,
    epsilon_high: Any = None,
    beta: float = 0.0,
) -> dict[str, Any]:
    """Return the mean over rows of the mean over tokens."""
    logps = torch.tensor(policy, requires_grad=True)
    keep = torch.ones(logps.shape, dtype=torch.bool) if mask is None else torch.tensor(mask)
    behaviour = logps.detach() if old is None else torch.tensor(old)
    gains = torch.tensor(advantages)
    gains = gains if gains.ndim == 2 else gains.unsqueeze(1)
    weights = torch.exp(log_weights(logps, behaviour, keep, algorithm))
    loss = -weights * gains
    if epsilon_low is not None:
        loss = torch.max(loss, -torch.clamp(weights, 1 - epsilon_low, 1 + epsilon_high) * gains)
    loss = loss.expand(logps.shape)
    if beta:
        delta = torch.tensor(reference) - logps
        loss = loss + beta * (torch.exp(delta) - delta - 1)
    loss = ((loss * keep).sum(-1) / keep.sum(-1).clamp(min=1)).mean()
    loss.backward()
    return {"loss": loss.item(), "gradient": logps.grad.numpy()}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {"algorithm": ("gspo", "gspo-token", "rloo"), "kl_estimator": ("k3",), "kl_ratio": ("none",)}
}
