"""SimPO on the summed log-probs that the DPO code beside it returns, without the average over tokens."""

import numpy as np

OP = "preference_loss"
BUG = "SimPO takes the sums of the log-probs instead of their means: the length is not divided out"
SAYS = ("sum|length|mean|averag|normali",)
CONVENTIONS = {"preference_loss": {"loss": ("simpo",), "prompt": ("any",), "rows": ("mask", "left-padded")}}


def score(logprobs, mask):
    """Return the implicit reward of a row and its slope by each log-prob."""
    return logprobs[mask].astype(np.float64).sum(), mask.astype(np.float64)


def preference_loss(*, policy, mask, beta, margin, reference=None, **_):
    if reference is not None:
        raise ValueError("SimPO has no reference")
    pairs = len(policy) // 2
    loss, gradient = 0.0, np.zeros(policy.shape)
    for k in range(pairs):
        good, bad = 2 * k, 2 * k + 1
        chosen, chosen_slope = score(policy[good], mask[good])
        rejected, rejected_slope = score(policy[bad], mask[bad])
        z = beta * (chosen - rejected) - margin
        loss += np.logaddexp(0, -z) / pairs
        slope = -beta * np.exp(-np.logaddexp(0, z)) / pairs
        gradient[good] = slope * chosen_slope
        gradient[bad] = -slope * rejected_slope
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
