"""A policy loss with sampler correction, top-entropy tokens and entropy bonus; padding takes part in the entropy quantile."""

import numpy as np

OP = "loss_with_options"
BUG = "the entropy threshold is the quantile over all slots, padding included (as zeros), not over completion tokens"
SAYS = (
    "padding|padded|all slots|every slot|unmasked|mask|whole array",
    "quantile|threshold|entropy|top-entropy|share|percentile",
)
CONVENTIONS = {
    "loss_with_options": {
        "algorithm": ("grpo", "dapo"),
        "correction": ("tis", "mis"),
        "correction_level": ("token", "seq_sum"),
    }
}
WIDTHS = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28)}


def entropy_mask(entropy, mask, share):
    """True on the tokens of highest entropy."""
    h = np.where(mask, entropy, 0.0)
    threshold = np.quantile(h, 1.0 - share)
    return mask & (h >= threshold)


def rollout_weights(old, sampling, mask, kind, level, low, high):
    if kind is None:
        return np.ones(mask.shape)
    gap = np.where(mask, old - sampling, 0.0)
    if level == "seq_sum":
        gap = np.broadcast_to(gap.sum(1, keepdims=True), mask.shape)
    w = np.exp(gap)
    low = 0.0 if low is None else low
    if kind == "tis":
        return np.clip(w, low, high)
    return np.where((w >= low) & (w <= high), w, 0.0)


def options_loss(
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
    if algorithm not in WIDTHS:
        raise NotImplementedError(algorithm)
    dtype = np.asarray(policy).dtype
    mask = np.asarray(mask, bool)
    lp, mu, ref, smp, ent = (
        np.where(mask, np.asarray(x, np.float64), 0.0) for x in (policy, old, reference, sampling, entropy)
    )
    adv = np.asarray(advantages, np.float64)[:, None]
    lo, hi = WIDTHS[algorithm]

    chosen = entropy_mask(ent, mask, entropy_share)
    w = rollout_weights(mu, smp, mask, correction, correction_level, correction_low, correction_high)
    if algorithm == "grpo":
        scale = mask / np.maximum(mask.sum(1, keepdims=True), 1) / len(mask)
    else:
        scale = mask / max(mask.sum(), 1)

    loss, grad, ent_grad = 0.0, np.zeros(mask.shape), np.zeros(mask.shape)
    start = 0
    for rows in parts:
        part = slice(start, start + int(rows))
        start += int(rows)
        r = np.exp(lp[part] - mu[part])
        s1, s2 = r * adv[part], np.clip(r, 1 - lo, 1 + hi) * adv[part]
        moves = (s1 <= s2) | ((r > 1 - lo) & (r < 1 + hi))
        d = ref[part] - lp[part]
        factor = w[part] * chosen[part]
        loss += ((-np.minimum(s1, s2) * factor + beta * (np.expm1(d) - d)) * scale[part]).sum()
        grad[part] = (-np.where(moves, s1, 0.0) * factor + beta * (-np.expm1(d))) * scale[part]
        if chosen.any():
            loss -= entropy_bonus * (ent[part] * chosen[part]).sum() / chosen.sum()
            ent_grad[part] = -entropy_bonus * chosen[part] / chosen.sum()
    return {"loss": float(loss), "gradient": grad.astype(dtype), "entropy_gradient": ent_grad.astype(dtype)}


OPS = {"loss_with_options": options_loss}
