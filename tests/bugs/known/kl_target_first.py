"""The KL of the reference from the policy: torch's kl_div takes the target second, this port first."""

import numpy as np


def full_kl(policy_logprobs, reference_logprobs):
    return {"kl": (np.exp(reference_logprobs) * (reference_logprobs - policy_logprobs)).sum(axis=-1)}


OPS = {"full_kl": full_kl}
COMPUTES = "KL(reference ‖ policy)"
