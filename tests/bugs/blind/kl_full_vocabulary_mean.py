"""The full KL averaged over the vocabulary, as kl_div's reduction "mean" does."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "full_kl"
COMPUTES = "the mean over the vocabulary, not the sum"
BUG = "the terms are averaged over the vocabulary, not summed: too small by a factor of V"


def full_kl(*, policy_logprobs: Any, reference_logprobs: Any) -> dict[str, Any]:
    """Average over the vocabulary."""
    return {"kl": (np.exp(policy_logprobs) * (policy_logprobs - reference_logprobs)).mean(axis=-1)}


OPS = {"full_kl": full_kl}
