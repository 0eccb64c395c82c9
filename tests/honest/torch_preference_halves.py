"""DPO, hinge and IPO on a concatenated batch, chosen completions first, with F.logsigmoid, as most trainers do.

gates check preference --subject tests/honest/torch_preference_halves.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def concatenated(array: Any) -> Any:
    """Return the chosen rows, then the rejected ones."""
    x = torch.tensor(array)
    return torch.cat([x[::2], x[1::2]], dim=0)


def batch_logps(token_logps: Any, loss_mask: Any, *, average: bool) -> Any:
    """Return the sum or the mean of a completion's log-probs."""
    total = (token_logps * loss_mask).sum(-1)
    return total / loss_mask.sum(-1) if average else total


def preference_loss(
    *,
    policy: Any,
    reference: Any,
    mask: Any,
    loss: str,
    beta: float,
    label_smoothing: Any = None,
    lengths: Any = None,
) -> dict[str, Any]:
    """Return the mean over pairs."""
    logps = torch.tensor(policy, requires_grad=True)
    loss_mask, average = concatenated(mask), lengths == "mean"
    policy_all = batch_logps(torch.cat([logps[::2], logps[1::2]]), loss_mask, average=average)
    policy_chosen, policy_rejected = policy_all.chunk(2)
    if reference is None:
        reference_chosen, reference_rejected = torch.zeros_like(policy_chosen), torch.zeros_like(policy_rejected)
    else:
        reference_chosen, reference_rejected = batch_logps(concatenated(reference), loss_mask, average=average).chunk(2)
    pi_logratios = policy_chosen - policy_rejected
    ref_logratios = reference_chosen - reference_rejected
    logits = pi_logratios - ref_logratios
    if loss == "ipo":
        losses = torch.square(logits - 1 / (2 * beta))
    elif loss == "hinge":
        losses = functional.relu(1 - beta * logits)
    else:
        smoothing = label_smoothing or 0.0
        losses = -functional.logsigmoid(beta * logits) * (1 - smoothing)
        losses = losses - functional.logsigmoid(-beta * logits) * smoothing
    losses.mean().backward()
    return {"loss": losses.mean().item(), "gradient": logps.grad.numpy()}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("dpo", "hinge", "ipo")}}
