"""GRPO with one clip width, and a masked mean with 1e-8 in its denominator, as research repositories write it.

gates check loss --subject tests/honest/torch_loss_one_width.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def masked_mean(values: Any, mask: Any, axis: int | None = None) -> Any:
    """Return Σ m·x / (Σ m + 1e-8)."""
    return (values * mask).sum(axis) / (mask.sum(axis) + 1e-8)


def grpo(logps: Any, old_logps: Any, ref_logps: Any, advantages: Any, mask: Any, epsilon: float, beta: float) -> Any:
    """Return the loss of a batch of completions."""
    ratio = (logps - old_logps).exp()
    unclipped = advantages * ratio
    clipped = advantages * ratio.clamp(1 - epsilon, 1 + epsilon)
    per_token = -torch.minimum(unclipped, clipped)
    if ref_logps is not None:
        kl = (ref_logps - logps).exp() - (ref_logps - logps) - 1
        per_token = per_token + beta * kl
    return masked_mean(per_token, mask, axis=1).mean()


def policy_loss(
    *,
    policy: Any,
    advantages: Any,
    mask: Any = None,
    old: Any = None,
    reference: Any = None,
    epsilon_low: float = 0.2,
    beta: float = 0.0,
) -> dict[str, Any]:
    """Convert, call, and let autograd do the rest."""
    logps = torch.tensor(policy, requires_grad=True)
    keep = torch.ones_like(logps) if mask is None else torch.tensor(mask).to(logps.dtype)
    old_logps = logps.detach() if old is None else torch.tensor(old)
    ref_logps = torch.tensor(reference) if beta else None
    gains = torch.tensor(advantages)
    loss = grpo(logps, old_logps, ref_logps, gains[:, None] if gains.dim() == 1 else gains, keep, epsilon_low, beta)
    loss.backward()
    return {"loss": loss.item(), "gradient": logps.grad.numpy()}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {"policy_loss": {"algorithm": ("grpo",), "kl_estimator": ("k3",), "kl_ratio": ("none",)}}
