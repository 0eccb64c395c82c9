"""Weights that correct for a sampler that is not the trainer; the two log-probs are subtracted the wrong way round."""

import numpy as np

OP = "importance_weights"
BUG = "the weight is exp(sampling - old), the inverse of exp(old - sampling)"
SAYS = ("invers|invert|reciprocal|sign|revers|swap|exchang|wrong way|sampling - old|sampling − old|upside|negat",)
CONVENTIONS = {"importance_weights": {"correction": ("tis", "mis"), "level": ("token", "seq_sum")}}


def valid(shape, mask, lengths):
    if mask is not None:
        return np.asarray(mask, bool)
    if lengths is not None and len(shape) == 2:
        return np.arange(shape[1])[None, :] < np.asarray(lengths)[:, None]
    return np.ones(shape, bool)


def rollout_is_weights(rollout_log_prob, train_log_prob, keep, kind, lower, upper, reduce):
    log_ratio = np.where(keep, train_log_prob - rollout_log_prob, 0.0)
    log_ratio = reduce(log_ratio)
    weights = np.exp(np.clip(log_ratio, -700.0, 700.0))
    lower = 0.0 if lower is None else lower
    if kind == "tis":
        return np.clip(weights, lower, upper)
    return weights * ((weights >= lower) & (weights <= upper))


def importance_weights(*, old, sampling, correction, level, c_min=None, c_max=None, mask=None, lengths=None):
    old = np.asarray(old)
    keep = valid(old.shape, mask, lengths)
    train, rollout = old.astype(np.float64), np.asarray(sampling).astype(np.float64)
    if level == "token":
        reduce = lambda x: x
    elif old.ndim == 2:
        reduce = lambda x: x.sum(axis=1)
    else:
        edges = np.concatenate([[0], np.cumsum(lengths)]).astype(int)
        reduce = lambda x: np.array([x[a:b].sum() for a, b in zip(edges[:-1], edges[1:])])
    w = rollout_is_weights(train, rollout, keep, correction, c_min, c_max, reduce)
    if level == "token":
        w = np.where(keep, w, 0.0)
    return {"weights": w.astype(old.dtype)}


OPS = {"importance_weights": importance_weights}
