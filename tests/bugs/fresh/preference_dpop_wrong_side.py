"""DPO-Positive whose penalty watches the rejected completion fall and not the chosen one."""

import numpy as np

OP = "preference_loss"
BUG = "the penalty of DPO-Positive is taken of the rejected completion instead of the chosen one"
SAYS = ("penalty|positive|dpop|max", "rejected|chosen|side")
CONVENTIONS = {"preference_loss": {"loss": ("dpop",), "prompt": ("any",), "rows": ("mask", "left-padded")}}


def preference_loss(*, policy, reference, mask, beta, penalty, **_):
    pairs = len(policy) // 2
    total, gradient = 0.0, np.zeros(policy.shape)
    for k in range(pairs):
        rows = (2 * k, 2 * k + 1)
        reward = []
        for row in rows:
            lp = policy[row, mask[row]].astype(np.float64)
            ref = 0.0 if reference is None else reference[row, mask[row]]
            reward.append(float(np.sum(lp - ref)))
        watched = 1
        fall = max(0.0, -reward[watched])
        z = beta * (reward[0] - reward[1] - penalty * fall)
        total += np.logaddexp(0, -z) / pairs
        outer = -beta * np.exp(-np.logaddexp(0, z)) / pairs
        slopes = [1.0, -1.0]
        if fall > 0:
            slopes[watched] += penalty
        for row, slope in zip(rows, slopes, strict=True):
            gradient[row, mask[row]] = outer * slope
    return {"loss": float(total), "gradient": gradient.astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
