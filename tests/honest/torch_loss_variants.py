"""CISPO with a mean over rows and a lower bound of its weights, in PyTorch with autograd's gradients.

gates check loss --subject tests/honest/torch_loss_variants.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return the loss and its gradient."""
    advantages = torch.tensor(x["advantages"])
    mask = torch.ones(x["policy"].shape, dtype=torch.bool) if x["mask"] is None else torch.tensor(x["mask"])
    advantages = advantages if advantages.ndim == 2 else advantages[:, None]
    policy = torch.tensor(x["policy"], requires_grad=True)
    low = 0.0 if x["epsilon_low"] is None else 1.0 - x["epsilon_low"]
    with torch.no_grad():
        ratio = torch.exp(policy - torch.tensor(x["old"])) if x["old"] is not None else torch.ones_like(policy)
        weight = torch.clamp(ratio, low, 1.0 + x["epsilon_high"])
    losses = -weight * advantages * policy
    if x["weights"] is not None:
        weights = torch.tensor(x["weights"])
        losses = losses * (weights if weights.ndim == 2 else weights[:, None])
    if x["beta"]:
        d = torch.tensor(x["reference"]) - policy
        losses = losses + x["beta"] * (torch.exp(d) - d - 1)
    rows = torch.where(mask, losses, 0.0).sum(1) / mask.sum(1).clamp(min=1)
    loss = rows.mean()
    loss.backward()
    return {"loss": loss.item(), "gradient": policy.grad.numpy()}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("cispo",),
        "aggregation": ("row-mean",),
        "cispo_bound": ("relative",),
        "lower_bound": (False, True),
        "rows": ("mask", "holes", "all"),
        "kl_ratio": ("none",),
        "kl_estimator": ("k3",),
    }
}
