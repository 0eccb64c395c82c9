"""Full KL written with the target first, as cross entropy has it: the reference weighs the terms."""

import numpy as np

OP = "full_kl"
BUG = "the divergence is KL(reference || policy): policy and reference are exchanged"
SAYS = ("exchang|swap|revers|order|direction|KL(reference|KL(q|argument|wrong way",)
CONVENTIONS = {"full_kl": {"dtype": ("float32", "float64")}}


def divergence(log_a, log_b):
    a = np.exp(log_a)
    possible = log_a > -np.inf
    gap = np.where(possible, log_a, 0) - np.where(possible, log_b, 0)
    return np.where(possible, a * gap, 0).sum(axis=-1)


def full_kl(*, policy_logprobs, reference_logprobs):
    p = policy_logprobs.astype(np.float64)
    q = reference_logprobs.astype(np.float64)
    return {"kl": divergence(q, p)}


OPS = {"full_kl": full_kl}
