"""GRPO with a top-entropy mask whose quantile is taken at the share itself and not at one minus it."""

import numpy as np

OP = "loss_with_options"
BUG = "the entropy threshold is the quantile of rho instead of that of 1 - rho"
SAYS = ("quantile|threshold|percentile|share|1 - rho|1 − ρ",)
CONVENTIONS = {"loss_with_options": {"algorithm": ("grpo", "dapo")}}


def off_policy_weights(old, sampling, mask, correction, level, low, high):
    delta = np.where(mask, old - np.where(mask, sampling, 0), 0)
    if level == "seq_sum":
        delta = np.broadcast_to(delta.sum(axis=1, keepdims=True), delta.shape)
    w = np.exp(delta)
    low = 0.0 if low is None else low
    if correction == "mis":
        return np.where((w >= low) & (w <= high), w, 0)
    return np.clip(w, low, high)


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
    lp, before, ref, h = (np.where(mask, x, 0).astype(np.float64) for x in (policy, old, reference, entropy))
    a = np.where(mask, advantages[:, None], 0).astype(np.float64)
    high = {"grpo": 0.2, "dapo": 0.28}[algorithm]
    ratio = np.exp(lp - before)
    plain, clipped = -a * ratio, -a * np.clip(ratio, 0.8, 1 + high)
    surrogate, slope = np.maximum(plain, clipped), np.where(plain >= clipped, plain, 0)

    threshold = np.quantile(h[mask], entropy_share)
    train = mask & (h >= threshold)
    w = np.ones(lp.shape)
    if correction is not None:
        w = off_policy_weights(before, sampling, mask, correction, correction_level, correction_low, correction_high)
    d = ref - lp
    tokens = w * train * surrogate + beta * (np.expm1(d) - d)
    slopes = w * train * slope - beta * np.expm1(d)
    if algorithm == "grpo":
        share = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1) / len(lp)
    else:
        share = mask / max(mask.sum(), 1)
    kept = max(train.sum(), 1)
    loss = (share * tokens).sum() - entropy_bonus * (h * train).sum() / kept
    return {
        "loss": float(loss),
        "gradient": (share * slopes).astype(policy.dtype),
        "entropy_gradient": (-entropy_bonus * train / kept).astype(policy.dtype),
    }


OPS = {"loss_with_options": loss_with_options}
