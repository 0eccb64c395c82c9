"""KL estimators per token or per sequence; the mean over a sequence is divided by the tokens of the whole batch."""

import numpy as np

OP = "token_kl"
BUG = "reduction mean divides each sequence's sum by the token count of the whole batch (mask.sum() without an axis)"
SAYS = (
    "batch|all tokens|total|whole|axis|all sequences|every sequence|all rows|global|every row",
    "divis|divide|denominator|normalis|normaliz|count|mean|averag|number of tokens|tokens",
)
CONVENTIONS = {
    "token_kl": {
        "estimator": ("k1", "k2", "k3"),
        "kl_ratio": ("none", "token"),
        "reduction": ("none", "sum", "mean"),
        "rows": ("all", "mask", "holes", "left-padded", "lengths"),
    }
}

ESTIMATORS = {
    "k1": lambda d: -d,
    "k2": lambda d: 0.5 * d**2,
    "k3": lambda d: np.expm1(d) - d,
}


def masked_sum(x, mask):
    return (x * mask).sum(axis=1)


def masked_mean(x, mask):
    return masked_sum(x, mask) / np.maximum(mask.sum(), 1)


def build_mask(shape, mask, lengths):
    if mask is None:
        stop = shape[1] if lengths is None else np.asarray(lengths)[:, None]
        return np.broadcast_to(np.arange(shape[1])[None, :] < stop, shape)
    return np.asarray(mask, bool)


def token_kl(*, policy, reference, estimator, mask=None, lengths=None, reduction, old=None, kl_ratio="none"):
    policy = np.asarray(policy)
    if policy.ndim != 2 or kl_ratio == "sequence":
        raise NotImplementedError("padded rows, ratios of tokens")
    m = build_mask(policy.shape, mask, lengths)
    lp, ref = (np.where(m, np.asarray(a, np.float64), 0.0) for a in (policy, reference))
    kl = ESTIMATORS[estimator](ref - lp)
    if kl_ratio == "token" and old is not None:
        kl = kl * np.exp(lp - np.where(m, np.asarray(old, np.float64), 0.0))
    kl = np.where(m, kl, 0.0)
    if reduction == "sum":
        kl = masked_sum(kl, m)
    elif reduction == "mean":
        kl = masked_mean(kl, m)
    return {"kl": kl.astype(policy.dtype)}


OPS = {"token_kl": token_kl}
