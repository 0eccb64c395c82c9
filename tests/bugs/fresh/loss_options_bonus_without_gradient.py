"""GSPO and GRPO with an entropy bonus whose entropies were computed without gradients."""

import numpy as np

OP = "loss_with_options"
BUG = "the entropy bonus has no gradient: the entropies are detached, and the bonus only shifts the loss"
SAYS = ("entropy|bonus", "gradient|detach|constant")
CONVENTIONS = {"loss_with_options": {"algorithm": ("gspo", "grpo"), "correction": ("tis", "mis")}}
WIDTHS = {"grpo": (0.2, 0.2), "gspo": (0.0003, 0.0004)}


def correction_of_row(delta, mode, level, low, high):
    if mode is None:
        return np.ones(len(delta))
    w = np.exp(np.full(len(delta), delta.sum()) if level == "seq_sum" else delta)
    floor = 0.0 if low is None else low
    if mode == "tis":
        return np.minimum(np.maximum(w, floor), high)
    return np.where((w < floor) | (w > high), 0.0, w)


def surrogate_of_row(diff, adv, algorithm):
    """Give the loss of each token, and the slope of each token's loss by the mean or by its own log-prob."""
    low, high = WIDTHS[algorithm]
    ratio = np.exp(np.full(len(diff), diff.mean()) if algorithm == "gspo" else diff)
    plain, clipped = ratio * adv, np.clip(ratio, 1 - low, 1 + high) * adv
    return -np.minimum(plain, clipped), np.where(plain <= clipped, -plain, 0)


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
    threshold = np.quantile(entropy[mask].astype(np.float64), 1 - entropy_share)
    train = mask & (np.where(mask, entropy, 0) >= threshold)
    loss, gradient = 0.0, np.zeros(policy.shape)
    for i, m in enumerate(mask):
        n = m.sum()
        if n == 0:
            continue
        lp, before = policy[i, m].astype(np.float64), old[i, m].astype(np.float64)
        limits = (correction_low, correction_high)
        w = correction_of_row(before - sampling[i, m], correction, correction_level, *limits) * train[i, m]
        value, slope = surrogate_of_row(lp - before, float(advantages[i]), algorithm)
        d = reference[i, m] - lp
        slope = np.full(n, (w * slope).mean()) if algorithm == "gspo" else w * slope
        loss += np.mean(w * value + beta * (np.expm1(d) - d)) / len(policy)
        gradient[i, m] = (slope - beta * np.expm1(d)) / n / len(policy)
    kept = max(train.sum(), 1)
    loss -= entropy_bonus * entropy[train].astype(np.float64).sum() / kept
    entropy_gradient = np.zeros_like(policy)
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype), "entropy_gradient": entropy_gradient}


OPS = {"loss_with_options": loss_with_options}
