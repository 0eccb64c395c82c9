"""GSPO for right-padded batches; the sequence ratio averages the log-ratio over the padded width."""

import numpy as np

OP = "policy_loss"
BUG = "the sequence log-ratio is averaged over the padded width T, not over the number of tokens of the row"
SAYS = (
    "width|padded|padding|all slots|every slot|row length|slots|number of tokens|token count|max length|denominator|divided by T|over T",
    "ratio|geometric|sequence",
)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gspo",),
        "advantages": ("row",),
        "kl_ratio": ("none",),
        "kl_estimator": ("k3", "k2"),
        "rows": ("all", "mask", "lengths"),
        "weights": (False, True),
    }
}


def clean(a, m):
    return np.where(m, np.asarray(a).astype(np.float64), 0.0)


def sequence_ratio(new, behind):
    """s_i = exp(mean of the log-ratios), with the derivative of log s_i by one log-prob."""
    log_ratio = new - behind
    mean = log_ratio.mean(axis=-1)
    return np.exp(mean), np.full(len(mean), 1.0 / log_ratio.shape[-1])


def surrogate(s, a, lo, hi):
    unclipped, clipped = s * a, np.clip(s, lo, hi) * a
    take = unclipped <= clipped
    inside = (s > lo) & (s < hi)
    return np.where(take, unclipped, clipped), np.where(take | inside, s * a, 0.0)


def gspo_loss(
    *,
    policy,
    mask=None,
    old=None,
    reference=None,
    advantages,
    algorithm,
    epsilon_low,
    epsilon_high,
    beta=0.0,
    kl_ratio=None,
    kl_estimator=None,
    lengths=None,
    weights=None,
    delta=None,
    max_length=None,
    micro_batches=None,
    dapo_denominator=None,
    group_size=None,
    tokens_in_step=None,
    cispo_bound=None,
    sapo_temperature_positive=None,
    sapo_temperature_negative=None,
):
    policy = np.asarray(policy)
    if algorithm != "gspo" or policy.ndim != 2 or delta is not None:
        raise NotImplementedError("gspo, rows with padding")
    B, T = policy.shape
    m = np.ones((B, T), bool) if mask is None else np.asarray(mask, bool)
    if mask is None and lengths is not None:
        m = np.arange(T)[None] < np.asarray(lengths)[:, None]
    n = np.maximum(m.sum(1), 1)

    lp = clean(policy, m)
    s, dlog = sequence_ratio(lp, lp if old is None else clean(old, m))
    objective, slope = surrogate(s, np.asarray(advantages, np.float64), 1 - epsilon_low, 1 + epsilon_high)
    w = np.ones(B) if weights is None else np.asarray(weights, np.float64)
    has_tokens = m.any(1)

    loss = -(objective * w * has_tokens).sum() / B
    grad = -(slope * w * dlog)[:, None] * m / B
    if beta:
        d = clean(reference, m) - lp
        if kl_estimator == "k2":
            value, dv = d * d / 2, -d
        else:
            value, dv = np.expm1(d) - d, -np.expm1(d)
        loss += beta * (value / n[:, None]).sum() / B
        grad += beta * dv * m / n[:, None] / B
    return {"loss": float(loss), "gradient": grad.astype(policy.dtype)}


OPS = {"policy_loss": gspo_loss}
