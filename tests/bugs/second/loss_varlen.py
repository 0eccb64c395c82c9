"""GRPO on packed (flat) sequences; the first token of each sequence is taken for one of the sequence before."""

import numpy as np

OP = "policy_loss"
BUG = "off by one at the sequence boundaries of the flat layout: each sequence's first token belongs to the previous sequence"
SAYS = (
    "boundar|first token|off by one|off-by-one|one late|shift|previous sequence|previous row|neighbour|segment|wrong row|another row|other row|row before",
)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "advantages": ("row",),
        "kl_ratio": ("none",),
        "kl_estimator": ("k3",),
        "rows": ("flat",),
        "weights": (False,),
    }
}


def sequence_ids(cu_seqlens, total):
    """The sequence that each position of the packed array lies in."""
    position = np.arange(total)
    return np.searchsorted(cu_seqlens[1:], position, side="left")


def grpo_varlen(
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
    if algorithm != "grpo" or policy.ndim != 1 or weights is not None:
        raise NotImplementedError("packed grpo")
    lengths = np.asarray(lengths)
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
    seq = sequence_ids(cu_seqlens, len(policy))

    logp = policy.astype(np.float64)
    log_ratio = np.zeros_like(logp) if old is None else logp - np.asarray(old, np.float64)
    coef_1 = np.exp(log_ratio)
    coef_2 = np.clip(coef_1, 1 - epsilon_low, 1 + epsilon_high)
    moving = (coef_1 > 1 - epsilon_low) & (coef_1 < 1 + epsilon_high)
    upper = np.inf if delta is None else delta
    capped = np.minimum(coef_1, upper)

    a = np.asarray(advantages, np.float64)[seq]
    first, second = capped * a, coef_2 * a
    per_token_loss = -np.minimum(first, second)
    d_first, d_second = np.where(coef_1 < upper, coef_1 * a, 0.0), np.where(moving, coef_1 * a, 0.0)
    slope = -np.where(first < second, d_first, np.where(first == second, np.where(moving, d_second, d_first), d_second))
    if beta:
        gap = np.asarray(reference, np.float64) - logp
        per_token_loss = per_token_loss + beta * (np.expm1(gap) - gap)
        slope = slope + beta * (-np.expm1(gap))

    scale = 1.0 / (np.maximum(lengths, 1)[seq] * len(lengths))
    return {"loss": float(per_token_loss @ scale), "gradient": (slope * scale).astype(policy.dtype)}


OPS = {"policy_loss": grpo_varlen}
