"""DPO and SimPO on pairs of rows; SimPO's margin is subtracted before beta scales the difference."""

import numpy as np

OP = "preference_loss"
BUG = "SimPO's margin is multiplied by beta: beta * (difference - gamma) instead of beta * difference - gamma"
SAYS = ("margin|gamma|γ", "beta|β|scal|inside|before|multipl|bracket|parenthes")
CONVENTIONS = {
    "preference_loss": {"loss": ("simpo", "dpo"), "reference_free": (False, True), "rows": ("left-padded", "mask")}
}


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def sequence_logps(per_token, mask, average):
    """Summed or mean log-probs of the rows, and what one token of a row adds to it."""
    n = np.maximum(mask.sum(1), 1)
    share = 1.0 / n if average else np.ones(len(n))
    return (np.where(mask, per_token, 0.0)).sum(1) * share, share


def preference_loss(
    *, policy, reference=None, mask, loss, beta, label_smoothing=None, lengths=None, penalty=None, margin=None, nll=None
):
    policy = np.asarray(policy)
    mask = np.asarray(mask, bool)
    logps, share = sequence_logps(policy.astype(np.float64), mask, average=loss == "simpo")
    chosen, rejected = logps[0::2], logps[1::2]
    pairs = len(chosen)
    s = 0.0
    if loss == "dpo":
        s = label_smoothing or 0.0
        logits = chosen - rejected
        if reference is not None:
            ref, _ = sequence_logps(np.asarray(reference, np.float64), mask, average=False)
            logits = logits - (ref[0::2] - ref[1::2])
    elif loss == "simpo":
        logits = (chosen - rejected) - margin
    else:
        raise NotImplementedError(loss)
    z = beta * logits
    value = (1 - s) * softplus(-z) + s * softplus(z)
    dz = -(1 - s) * sigmoid(-z) + s * sigmoid(z)
    row = np.empty(2 * pairs)
    row[0::2] = beta * dz / pairs
    row[1::2] = -beta * dz / pairs
    grad = (row * share)[:, None] * mask
    return {"loss": float(value.mean()), "gradient": grad.astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
