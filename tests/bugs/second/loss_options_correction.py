"""Clipped policy loss with truncated importance sampling; the correction compares the current policy with the sampler."""

import numpy as np

OP = "loss_with_options"
BUG = "the correction weight is exp(policy - sampling), with the current policy where the old log-probs belong"
SAYS = (
    "current policy|policy − sampling|policy - sampling|policy instead of|new log-prob|current log-prob|old log-prob|instead of old|instead of the old|not old|in place of old|in place of the old|policy in the place|from the policy|policy's",
)
CONVENTIONS = {
    "loss_with_options": {
        "algorithm": ("grpo", "dapo", "gspo"),
        "correction": ("tis", "mis"),
        "correction_level": ("token", "seq_sum"),
    }
}
EPS = dict(grpo=(0.2, 0.2), dapo=(0.2, 0.28), gspo=(3e-4, 4e-4))


class Batch:
    def __init__(self, mask, **arrays):
        self.mask = np.asarray(mask, bool)
        for name, x in arrays.items():
            setattr(self, name, np.where(self.mask, np.asarray(x, np.float64), 0.0))
        self.n = np.maximum(self.mask.sum(1), 1)
        self.rows = len(self.mask)


def correction_weights(log_probs, rollout_log_probs, mask, kind, level, low, high):
    log_w = (log_probs - rollout_log_probs) * mask
    if level == "seq_sum":
        log_w = log_w.sum(axis=1, keepdims=True) * np.ones_like(log_w)
    w = np.exp(log_w)
    floor = -np.inf if low is None else low
    if kind == "mis":
        w[(w < floor) | (w > high)] = 0.0
        return w
    return np.minimum(np.maximum(w, floor), high)


def top_entropy(b, share):
    cut = np.quantile(b.entropy[b.mask], 1 - share)
    return (b.entropy >= cut) & b.mask


def loss_with_options(
    *,
    policy,
    old,
    reference,
    sampling,
    entropy,
    advantages,
    mask,
    algorithm,
    beta,
    correction,
    correction_level,
    correction_low,
    correction_high,
    entropy_share,
    entropy_bonus,
    parts,
):
    out = np.asarray(policy).dtype
    b = Batch(mask, policy=policy, old=old, reference=reference, sampling=sampling, entropy=entropy)
    A = np.asarray(advantages, np.float64)[:, None]
    w = np.ones(b.mask.shape)
    if correction is not None:
        w = correction_weights(
            b.policy, b.sampling, b.mask, correction, correction_level, correction_low, correction_high
        )
    e = top_entropy(b, entropy_share)

    if algorithm == "dapo":
        share = b.mask / b.mask.sum()
    else:
        share = b.mask / b.n[:, None] / b.rows
    low, high = 1 - EPS[algorithm][0], 1 + EPS[algorithm][1]
    D = b.policy - b.old
    if algorithm == "gspo":
        D = D.sum(1, keepdims=True) / b.n[:, None]
    ratio = np.exp(D)
    free, held = ratio * A, np.clip(ratio, low, high) * A
    per_token = -np.minimum(free, held)
    active = (free <= held) | ((ratio > low) & (ratio < high))
    slope = -free * active
    g = slope * w * e * share
    if algorithm == "gspo":
        g = b.mask * g.sum(1, keepdims=True) / b.n[:, None]

    gap = b.reference - b.policy
    kl = np.expm1(gap) - gap
    loss = ((per_token * w * e + beta * kl) * share).sum()
    g = g + beta * (-np.expm1(gap)) * share
    loss -= entropy_bonus * (b.entropy * e).sum() / max(e.sum(), 1)
    h = -entropy_bonus * e / max(e.sum(), 1)
    return {"loss": float(loss), "gradient": g.astype(out), "entropy_gradient": h.astype(out)}


OPS = {"loss_with_options": loss_with_options}
