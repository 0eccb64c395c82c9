"""ORPO with log(1 − p) as log1p(−exp), SimPO as softplus, CPO with its likelihood, in PyTorch.

gates check preference --subject tests/honest/torch_preference_odds.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def odds_ratio_loss(chosen: Any, rejected: Any) -> Any:
    """Return −log σ of the log odds ratio."""
    log_odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
    return functional.softplus(-log_odds)


def preference_loss(
    *, policy: Any, mask: Any, loss: str, beta: float, margin: Any = None, nll: Any = None
) -> dict[str, Any]:
    """Return the mean over pairs of a loss without a reference model."""
    logps = torch.tensor(policy, requires_grad=True)
    tokens = torch.tensor(mask)
    totals = logps.masked_fill(~tokens, 0.0).sum(dim=1)
    means = totals / tokens.sum(dim=1)
    if loss == "simpo":
        value = functional.softplus(margin - beta * (means[0::2] - means[1::2])).mean()
    elif loss == "orpo":
        value = (beta * odds_ratio_loss(means[0::2], means[1::2]) - means[0::2]).mean()
    else:
        likelihood = totals[0::2].sum() / tokens[0::2].sum()
        value = functional.softplus(-beta * (totals[0::2] - totals[1::2])).mean() - nll * likelihood
    (gradient,) = torch.autograd.grad(value, logps)
    return {"loss": value.item(), "gradient": gradient.numpy()}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("orpo", "simpo", "cpo"), "nll_tokens": ("completion",)}}
