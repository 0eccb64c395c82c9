"""The KL as PyTorch trainers write it (TRL's per-token k3, verl's kl_penalty), in the dtype of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.functional import kl_div

VERSIONS = {"torch": torch.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {"token_kl": {"kl_clamp": (None, 10.0)}}


def _tensor(array: Any) -> Any:
    return None if array is None else torch.from_numpy(np.array(array))


def token_kl(
    *,
    policy: Any,
    reference: Any,
    estimator: Any,
    mask: Any,
    lengths: Any,
    reduction: Any,
    old: Any,
    kl_ratio: Any,
    kl_clamp: Any = None,
) -> Any:
    policy, reference, old = _tensor(policy), _tensor(reference), _tensor(old)
    flat = policy.dim() == 1
    if flat:
        pieces = [len(policy)] if lengths is None else [int(n) for n in lengths]
        pad = torch.nn.utils.rnn.pad_sequence
        lengths = torch.tensor(pieces)
        policy, reference = (pad(list(x.split(pieces)), batch_first=True) for x in (policy, reference))
        old = None if old is None else pad(list(old.split(pieces)), batch_first=True)
        mask = torch.arange(policy.shape[1])[None] < lengths[:, None]
    elif lengths is not None:
        mask = torch.arange(policy.shape[1])[None] < _tensor(lengths)[:, None]
    else:
        mask = torch.ones_like(policy, dtype=torch.bool) if mask is None else _tensor(mask)
    chosen, mask = mask, mask.to(policy.dtype)
    kl = policy - reference
    if estimator == "k2":
        kl = 0.5 * kl.square()
    if estimator == "k3":
        kl = torch.exp(reference - policy) - (reference - policy) - 1
    if kl_clamp is not None:
        kl = torch.clamp(kl, min=-kl_clamp, max=kl_clamp)
    if old is not None and kl_ratio != "none":
        log_ratio = policy - old
        if kl_ratio == "sequence":
            log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
        kl = kl * torch.exp(log_ratio)
    kl = kl * mask
    if reduction == "none":
        return {"kl": (kl[chosen] if flat else kl).numpy()}
    if reduction == "mean":
        return {"kl": (kl.sum(-1) / mask.sum(-1).clamp(min=1.0)).numpy()}
    return {"kl": kl.sum(-1).numpy()}


def full_kl(*, policy_logprobs: Any, reference_logprobs: Any) -> Any:
    target, other = _tensor(policy_logprobs), _tensor(reference_logprobs)
    return {"kl": kl_div(other, target, reduction="none", log_target=True).sum(-1).numpy()}


OPS = {"token_kl": token_kl, "full_kl": full_kl}
