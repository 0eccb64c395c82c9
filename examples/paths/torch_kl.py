"""A KL estimator in torch, with policy and reference exchanged: Gates names the mistake."""

import torch


def token_kl(*, policy, reference, mask):
    """Return k3 of each token, 0 outside the mask."""
    d = torch.tensor(policy) - torch.tensor(reference)
    return {"kl": ((torch.exp(d) - d - 1) * torch.tensor(mask)).numpy()}


OPS = {"token_kl": token_kl}
CONVENTIONS = {"token_kl": {"estimator": ("k3",), "reduction": ("none",), "kl_ratio": ("none",), "rows": ("mask",)}}
