"""Off-policy weights whose bounds are compared with the difference of log-probs and not with its exponential."""

import numpy as np

OP = "importance_weights"
BUG = "the bounds are applied to the log-ratio instead of to the ratio"
SAYS = ("log-ratio|log ratio|logarithm|log of|log space|before the exp|Δ|difference|delta",)
CONVENTIONS = {"importance_weights": {"correction": ("tis", "mis"), "level": ("token", "seq_sum")}}


def bounded(log_weight, correction, c_min, c_max):
    low = -np.inf if c_min is None else c_min
    if correction == "tis":
        return np.exp(np.minimum(np.maximum(log_weight, low), c_max))
    return np.where((log_weight >= low) & (log_weight <= c_max), np.exp(log_weight), 0)


def importance_weights(*, old, sampling, correction, level, c_min, c_max, mask, lengths):
    if old.ndim == 1:
        raise NotImplementedError("padded arrays only")
    if mask is None:
        mask = np.ones(old.shape, bool)
        if lengths is not None:
            mask = np.arange(old.shape[1]) < np.asarray(lengths)[:, None]
    log_weight = np.where(mask, old, 0).astype(np.float64) - np.where(mask, sampling, 0)
    if level == "token":
        return {"weights": np.where(mask, bounded(log_weight, correction, c_min, c_max), 0)}
    return {"weights": bounded(log_weight.sum(axis=1), correction, c_min, c_max)}


OPS = {"importance_weights": importance_weights}
