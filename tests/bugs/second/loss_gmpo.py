"""GMPO, the geometric-mean objective; the log-ratios are clipped after they have been averaged."""

import numpy as np

OP = "policy_loss"
BUG = (
    "the clip acts on the mean log-ratio of the row (the geometric mean), not on each token's log-ratio before the mean"
)
SAYS = (
    "after the mean|after averag|mean log-ratio|mean log ratio|mean ratio|geometric mean|sequence|row|each token|per token|per-token|token-level|token level|before the mean|before averag|order",
    "clip|bound|clamp",
)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gmpo",),
        "advantages": ("row",),
        "kl_ratio": ("none",),
        "kl_estimator": ("k1", "k2", "k3"),
        "rows": ("all", "mask", "holes", "lengths"),
        "weights": (False,),
    }
}


def one_sided(x, sign, low, high):
    """What a positive advantage must not push above high, and a negative one not below -low; and where x is free."""
    if sign > 0:
        return np.minimum(x, high), x <= high
    return np.maximum(x, -low), x >= -low


def geometric_row(diff, advantage, low, high):
    sign = 1.0 if advantage >= 0 else -1.0
    centre, free = one_sided(diff.mean(), sign, low, high)
    value = np.exp(centre) * advantage
    return -value, -value * free * np.ones(diff.size) / diff.size


def kl_tokens(lp, ref, name):
    d = ref - lp
    return {"k1": (-d, np.ones(d.size)), "k2": (d**2 / 2, -d), "k3": (np.expm1(d) - d, -np.expm1(d))}[name]


def gmpo(
    *,
    policy,
    mask=None,
    old=None,
    reference=None,
    advantages,
    algorithm,
    epsilon_low,
    epsilon_high,
    delta=None,
    beta=0.0,
    kl_ratio=None,
    kl_estimator=None,
    lengths=None,
    max_length=None,
    micro_batches=None,
    dapo_denominator=None,
    group_size=None,
    tokens_in_step=None,
    weights=None,
    cispo_bound=None,
    sapo_temperature_positive=None,
    sapo_temperature_negative=None,
):
    policy = np.asarray(policy)
    if algorithm != "gmpo" or policy.ndim != 2 or weights is not None or delta is not None:
        raise NotImplementedError("gmpo of padded rows")
    B, T = policy.shape
    total, gradient = 0.0, np.zeros((B, T))
    for i in range(B):
        if mask is not None:
            where = np.flatnonzero(mask[i])
        else:
            where = np.arange(T if lengths is None else int(lengths[i]))
        if where.size == 0:
            continue
        lp = policy[i, where].astype(np.float64)
        before = lp if old is None else np.asarray(old)[i, where].astype(np.float64)
        loss, slope = geometric_row(lp - before, float(advantages[i]), epsilon_low, epsilon_high)
        if beta:
            kl, dkl = kl_tokens(lp, np.asarray(reference)[i, where].astype(np.float64), kl_estimator)
            loss = loss + beta * kl.mean()
            slope = slope + beta * dkl / where.size
        total += loss / B
        gradient[i, where] = slope / B
    return {"loss": float(total), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": gmpo}
