"""KTO whose reference point is the mean of the mismatched log-ratios and may be negative."""

import numpy as np

OP = "kto_loss"
BUG = "the reference point z0 is not clamped at 0: a negative mean is used as it is"
SAYS = ("z0|reference point|mismatch|KL", "clamp|negative|max|at 0|below 0")
CONVENTIONS = {"kto_loss": {"rows": ("mask", "left-padded")}}


def sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))


def kto_loss(*, policy, reference, mask, desirable, mismatched, beta, desirable_weight, undesirable_weight):
    log_ratio = np.where(mask, policy, 0).astype(np.float64) - np.where(mask, reference, 0)
    log_ratio = log_ratio.sum(axis=1)
    z0 = float(np.mean(mismatched.astype(np.float64)))
    sign = np.where(desirable, 1.0, -1.0)
    weight = np.where(desirable, desirable_weight, undesirable_weight).astype(np.float64)
    value = sigmoid(sign * beta * (log_ratio - z0))
    losses = weight * (1 - value)
    slope = -weight * sign * beta * value * (1 - value) / len(policy)
    return {"loss": float(losses.mean()), "gradient": np.where(mask, slope[:, None], 0).astype(policy.dtype)}


OPS = {"kto_loss": kto_loss}
