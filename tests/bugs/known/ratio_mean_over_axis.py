"""GSPO's mean of the log-ratio divides by the width of the array, not by the row's tokens."""

import numpy as np


def importance_ratio(policy, old, *, mask, lengths, **_):
    if policy.ndim == 1:
        raise NotImplementedError("rows only")
    if mask is None:
        mask = np.ones(policy.shape, bool) if lengths is None else np.arange(policy.shape[1]) < lengths[:, None]
    log_ratio = np.where(mask, policy - old, 0)
    return {"ratio": np.exp(log_ratio.mean(axis=1))}


OPS = {"importance_ratio": importance_ratio}
CONVENTIONS = {"importance_ratio": {"level": ("seq_mean",)}}
COMPUTES = "D averaged over the padded width"
