"""The full KL by kl_div(input, target) with the policy as input: torch's order is the other one."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "full_kl"
COMPUTES = "KL(reference ‖ policy)"
BUG = "the sum is of q (log q - log p): the reference's divergence from the policy"


def kl_div(log_input: Any, log_target: Any) -> Any:
    """Return what torch's kl_div does with log_target=True: target times (target less input)."""
    return np.exp(log_target) * (log_target - log_input)


def full_kl(*, policy_logprobs: Any, reference_logprobs: Any) -> dict[str, Any]:
    """Sum over the vocabulary."""
    return {"kl": kl_div(policy_logprobs, reference_logprobs).sum(axis=-1)}


OPS = {"full_kl": full_kl}
