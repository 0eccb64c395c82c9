"""DAPO with clip-higher the wrong way round: the wide side is below 1 and the narrow one above."""

import numpy as np

OP = "policy_loss"
BUG = "the two clip widths are exchanged: epsilon_high below 1 and epsilon_low above"
SAYS = ("swap|exchang|interchang|revers|wrong way|1 + epsilon_low|1 + ε_low", "clip|eps|width|bound|ε")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "rows": ("mask", "holes", "lengths", "all"),
        "dapo_denominator": ("global", "trl"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
        "clip_width": ("two",),
    }
}


def valid_slots(policy, mask, lengths):
    if mask is not None:
        return mask
    if lengths is None:
        return np.full(policy.shape, True)
    return np.arange(policy.shape[1])[None, :] < np.asarray(lengths)[:, None]


def clip_surrogate(ratio, adv, epsilons, delta):
    low, high = epsilons
    plain = adv * (ratio if delta is None else np.minimum(ratio, delta))
    clipped = adv * np.clip(ratio, 1 - low, 1 + high)
    objective = np.minimum(plain, clipped)
    alive = (plain <= clipped) & ((delta is None) | (ratio <= (delta or np.inf)))
    return -objective, np.where(alive, -adv * ratio, 0)


def policy_loss(
    *,
    policy,
    mask,
    old,
    reference,
    advantages,
    epsilon_low,
    epsilon_high,
    beta,
    lengths,
    dapo_denominator,
    tokens_in_step,
    delta=None,
    **_,
):
    keep = valid_slots(policy, mask, lengths)
    lp = policy[keep].astype(np.float64)
    spread = np.repeat(advantages[:, None], policy.shape[1], axis=1) if advantages.ndim == 1 else advantages
    adv = spread[keep].astype(np.float64)
    ratio = np.exp(lp - (lp if old is None else old[keep]))
    ratio = np.where(adv == 0, 1, ratio)

    value, slope = clip_surrogate(ratio, adv, (epsilon_high, epsilon_low), delta)
    if beta:
        d = reference[keep] - lp
        value = value + beta * (np.exp(d) - d - 1)
        slope = slope + beta * (1 - np.exp(d))

    denominator = max(keep.sum(), 1) if dapo_denominator == "global" else tokens_in_step
    gradient = np.zeros_like(policy)
    gradient[keep] = slope / denominator
    return {"loss": float(value.sum() / denominator), "gradient": gradient}


OPS = {"policy_loss": policy_loss}
