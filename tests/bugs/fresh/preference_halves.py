"""DPO that splits the batch into a chosen and a rejected half, where the rows of a pair follow each other."""

import numpy as np

OP = "preference_loss"
BUG = "the first half of the rows is taken as chosen and the second as rejected, but pairs are interleaved"
SAYS = ("half|halves|interleav|adjacent|follow each other|split|block",)
CONVENTIONS = {"preference_loss": {"loss": ("dpo", "hinge"), "prompt": ("any",), "rows": ("mask", "left-padded")}}


def loss_and_slope(z, loss, smoothing):
    if loss == "hinge":
        return np.maximum(0, 1 - z), np.where(z < 1, -1.0, 0.0)
    s = smoothing or 0.0
    value = (1 - s) * np.logaddexp(0, -z) + s * np.logaddexp(0, z)
    sigma = np.exp(-np.logaddexp(0, -z))
    return value, sigma - 1 + s


def split(count):
    half = count // 2
    return np.arange(half), np.arange(half, count)


def preference_loss(*, policy, reference, mask, loss, beta, label_smoothing, **_):
    diff = np.where(mask, policy, 0).astype(np.float64)
    if reference is not None:
        diff = diff - np.where(mask, reference, 0)
    totals = diff.sum(axis=1)
    chosen, rejected = split(len(policy))
    value, slope = loss_and_slope(beta * (totals[chosen] - totals[rejected]), loss, label_smoothing)
    by_row = np.zeros(len(policy))
    by_row[chosen], by_row[rejected] = beta * slope, -beta * slope
    gradient = np.where(mask, by_row[:, None], 0) / len(chosen)
    return {"loss": float(value.mean()), "gradient": gradient.astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
