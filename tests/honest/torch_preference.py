"""Preference losses as TRL's trainers write them, in the dtype of the data; gradients by autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import logsigmoid, sigmoid

VERSIONS = {"torch": torch.__version__}


def tensor(array: Any) -> Any:
    """Return an array as a tensor."""
    return None if array is None else torch.tensor(array)


def differentiated(loss: Any, policy: Any) -> Any:
    """Return loss and gradient."""
    loss.backward()
    return {"loss": loss.item(), "gradient": policy.grad.numpy()}


def pair_losses(  # noqa: PLR0911  a choice of eight
    loss: Any, logps: Any, reference_logps: Any, policy: Any, mask: Any, constants: Any
) -> Any:
    """Return the loss of each pair."""
    beta = constants["beta"]
    chosen, rejected = logps[0::2], logps[1::2]
    ref_chosen, ref_rejected = reference_logps[0::2], reference_logps[1::2]
    logits = (chosen - rejected) - (ref_chosen - ref_rejected)
    if loss == "dpo":
        s = constants["label_smoothing"]
        return -logsigmoid(beta * logits) * (1 - s) - logsigmoid(-beta * logits) * s
    if loss == "hinge":
        return torch.relu(1 - beta * logits)
    if loss == "ipo":
        return (logits - 1 / (2 * beta)) ** 2
    if loss == "dpop":
        penalty = torch.clamp(ref_chosen - chosen, min=0)
        return -logsigmoid(beta * (logits - constants["penalty"] * penalty))
    if loss == "simpo":
        return -logsigmoid(beta * (logits - constants["margin"] / beta))
    if loss == "cpo":
        nll = -(policy * mask)[0::2].sum() / mask[0::2].sum()
        return (-logsigmoid(beta * logits)).mean() + constants["nll"] * nll
    log_odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
    losses = -(beta * logsigmoid(log_odds))
    if constants["attention_mask"] is None:
        return losses - chosen
    everything = tensor(constants["attention_mask"])[0::2]
    return losses.mean() - policy[0::2][everything].mean()


def preference_loss(*, policy: Any, reference: Any, mask: Any, loss: Any, **constants: Any) -> Any:
    """Return the mean over pairs, and its gradient."""
    policy = tensor(policy).requires_grad_()
    counted = tensor(mask).to(policy.dtype)
    counts = counted.sum(-1)
    logps = (policy * counted).sum(-1)
    reference_logps = torch.zeros_like(logps) if reference is None else (tensor(reference) * counted).sum(-1)
    if constants["lengths"] == "mean" or loss in {"simpo", "orpo"}:
        logps, reference_logps = logps / counts, reference_logps / counts
    constants.setdefault("attention_mask", None)
    losses = pair_losses(loss, logps, reference_logps, policy, counted, constants)
    return differentiated(losses.mean(), policy)


def kto_loss(
    *,
    policy: Any,
    reference: Any,
    mask: Any,
    desirable: Any,
    mismatched: Any,
    beta: Any,
    desirable_weight: Any,
    undesirable_weight: Any,
) -> Any:
    """Return the mean over rows, and its gradient."""
    policy, counted = tensor(policy).requires_grad_(), tensor(mask)
    logratios = (policy * counted).sum(-1) - (tensor(reference) * counted).sum(-1)
    kl = tensor(mismatched).mean().clamp(min=0)
    good = tensor(desirable)
    chosen = 1 - sigmoid(beta * (logratios[good] - kl))
    rejected = 1 - sigmoid(beta * (kl - logratios[~good]))
    losses = torch.cat((desirable_weight * chosen, undesirable_weight * rejected), 0)
    return differentiated(losses.mean(), policy)


def prefer(*, scores: Any) -> Any:
    """Return +1 for the higher of two scores, -1 for the other."""
    pairs = tensor(scores).view(-1, 2)
    first = pairs[:, 0] >= pairs[:, 1]
    return {"signs": torch.stack((first, ~first), 1).flatten().numpy() * 2.0 - 1.0}


def best_of_n(*, scores: Any, group_size: Any) -> Any:
    """Return the row of each group's highest score."""
    best = tensor(scores).view(-1, group_size).argmax(1)
    return {"rows": (best + group_size * torch.arange(len(best))).numpy()}


def winner_loss(*, policy: Any, mask: Any, scores: Any, group_size: Any, parts: Any) -> Any:
    """Accumulate the gradients of the parts."""
    winners = best_of_n(scores=scores, group_size=group_size)["rows"]
    policy, counted = tensor(policy).requires_grad_(), tensor(mask).float()
    chosen = torch.zeros(len(policy))
    chosen[winners] = 1
    total, start = 0.0, 0
    for size in parts:
        part = slice(start, start + size)
        means = (policy[part] * counted[part]).sum(-1) / counted[part].sum(-1)
        loss = -(means * chosen[part]).sum() / len(winners)
        loss.backward()
        total, start = total + loss.item(), start + size
    return {"loss": total, "gradient": policy.grad.numpy()}


OPS: dict[str, Any] = {
    "preference_loss": preference_loss,
    "kto_loss": kto_loss,
    "prefer": prefer,
    "best_of_n": best_of_n,
    "winner_loss": winner_loss,
}
