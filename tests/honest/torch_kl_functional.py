"""The full KL by torch's kl_div of two log-softmaxes, and estimators of tokens with masked_fill.

gates check kl --subject tests/honest/torch_kl_functional.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def full_kl(*, policy_logprobs: Any, reference_logprobs: Any) -> dict[str, Any]:
    """Return the KL of each position; log-softmax of log-probs changes them by their rounding alone."""
    p = functional.log_softmax(torch.tensor(policy_logprobs), dim=-1)
    q = functional.log_softmax(torch.tensor(reference_logprobs), dim=-1)
    return {"kl": functional.kl_div(q, p, reduction="none", log_target=True).sum(-1).numpy()}


def token_kl(
    *,
    policy: Any,
    reference: Any,
    estimator: str,
    mask: Any = None,
    reduction: str = "none",
    kl_clamp: Any = None,
) -> dict[str, Any]:
    """Return k1, k2 or k3 of each token, or reduced."""
    delta = torch.tensor(policy) - torch.tensor(reference)
    if estimator == "k1":
        kl = delta
    elif estimator == "k2":
        kl = 0.5 * delta.pow(2)
    else:
        kl = torch.exp(-delta) - 1 + delta
    kl = kl if kl_clamp is None else torch.clamp(kl, min=-kl_clamp, max=kl_clamp)
    keep = torch.ones(delta.shape, dtype=torch.bool) if mask is None else torch.tensor(mask)
    kl = kl.masked_fill(~keep, 0.0)
    if reduction == "sum":
        kl = kl.sum(1)
    if reduction == "mean":
        kl = kl.sum(1) / keep.sum(1).clamp(min=1)
    return {"kl": kl.numpy()}


OPS = {"token_kl": token_kl, "full_kl": full_kl}
CONVENTIONS = {"token_kl": {"kl_clamp": (None, 10.0), "kl_ratio": ("none",)}}
