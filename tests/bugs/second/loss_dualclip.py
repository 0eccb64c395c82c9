"""PPO and GRPO surrogate with a dual clip, padded batches; the dual clip bounds samples of positive advantage as well."""

import numpy as np

OP = "policy_loss"
BUG = "the dual clip (lower bound c*A of the surrogate) is applied to positive advantages too, not only where A < 0"
SAYS = (
    "dual|delta|δ|two-sided|second clip|lower bound of the surrogate",
    "positive|sign|every advantage|all advantages|negative|A > 0|A < 0|A>0|A<0",
)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("ppo", "grpo"),
        "dapo_denominator": ("global",),
        "kl_ratio": ("none",),
        "kl_estimator": ("k1", "k2", "k3"),
        "rows": ("all", "mask", "holes", "lengths"),
        "weights": (False,),
    }
}


def response_mask(shape, mask, lengths):
    if mask is not None:
        return np.asarray(mask, bool)
    if lengths is not None:
        return np.arange(shape[1])[None, :] < np.asarray(lengths)[:, None]
    return np.ones(shape, bool)


def masked(x, m):
    return np.where(m, np.asarray(x, np.float64), 0.0)


def approx_kl(logp, ref, kind):
    """Estimate of KL(policy || reference) for every token, and its derivative by logp."""
    d = ref - logp
    if kind == "k1":
        return -d, np.ones_like(d)
    if kind == "k2":
        return 0.5 * d * d, -d
    return np.expm1(d) - d, -np.expm1(d)


def token_weights(m, algorithm):
    if algorithm == "ppo":
        return m / max(m.sum(), 1)
    n = m.sum(1, keepdims=True)
    return m / np.maximum(n, 1) / m.shape[0]


def compute_policy_loss(
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
    if algorithm not in ("ppo", "grpo") or np.ndim(policy) != 2 or weights is not None:
        raise NotImplementedError("padded ppo and grpo only")
    m = response_mask(np.shape(policy), mask, lengths)
    logp = masked(policy, m)
    logp_old = logp if old is None else masked(old, m)
    adv = np.asarray(advantages, np.float64)
    adv = masked(adv, m) if adv.ndim == 2 else masked(np.broadcast_to(adv[:, None], m.shape), m)

    ratio = np.exp(logp - logp_old)
    low, high = 1.0 - epsilon_low, 1.0 + epsilon_high
    pg_losses1 = -adv * ratio
    pg_losses2 = -adv * np.clip(ratio, low, high)
    pg = np.maximum(pg_losses1, pg_losses2)
    live = (pg_losses1 >= pg_losses2) | ((ratio >= low) & (ratio <= high))
    grad = np.where(live, -adv * ratio, 0.0)

    if delta is not None:
        pg_losses3 = -adv * delta
        bounded = pg_losses3 < pg
        pg = np.where(bounded, pg_losses3, pg)
        grad = np.where(bounded, 0.0, grad)

    if beta:
        if kl_ratio not in (None, "none"):
            raise NotImplementedError(kl_ratio)
        kl, dkl = approx_kl(logp, masked(reference, m), kl_estimator)
        pg = pg + beta * kl
        grad = grad + beta * dkl

    w = token_weights(m.astype(np.float64), algorithm)
    return {"loss": float((w * pg).sum()), "gradient": (w * grad).astype(np.asarray(policy).dtype)}


OPS = {"policy_loss": compute_policy_loss}
