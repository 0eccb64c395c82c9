"""Off-policy weights of the sampler over the trainer: the difference of log-probs is the wrong way round."""

import numpy as np

OP = "importance_weights"
BUG = "the weight is exp(sampling - old), the inverse of what it should be"
SAYS = ("inver|exchang|swap|sampling - old|sampling − old|revers|sign|wrong way",)
CONVENTIONS = {"importance_weights": {"correction": ("tis", "mis"), "level": ("token", "seq_sum")}}


def row_slices(old, mask, lengths):
    if old.ndim == 1:
        stops = np.cumsum(lengths)
        return [np.arange(stop - n, stop) for stop, n in zip(stops, lengths, strict=True)]
    width = old.shape[1]
    if mask is None:
        counts = np.full(len(old), width) if lengths is None else lengths
        mask = np.arange(width) < counts[:, None]
    return [i * width + np.flatnonzero(row) for i, row in enumerate(mask)]


def importance_weights(*, old, sampling, correction, level, c_min, c_max, mask, lengths):
    ours, theirs = old.reshape(-1).astype(np.float64), sampling.reshape(-1).astype(np.float64)
    rows = row_slices(old, mask, lengths)
    delta = np.zeros(old.size)
    for at in rows:
        delta[at] = theirs[at] - ours[at]
    weight = np.exp(np.array([delta[at].sum() for at in rows]) if level == "seq_sum" else delta)
    low = 0.0 if c_min is None else c_min
    if correction == "mis":
        weight = np.where((weight >= low) & (weight <= c_max), weight, 0)
    else:
        weight = np.minimum(np.maximum(weight, low), c_max)
    if level == "token":
        used = np.zeros(old.size, bool)
        used[np.concatenate(rows).astype(int)] = True
        weight = np.where(used, weight, 0).reshape(old.shape)
    return {"weights": weight}


OPS = {"importance_weights": importance_weights}
