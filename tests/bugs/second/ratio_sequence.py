"""Importance ratios of tokens and sequences; the length-normalised ratio averages the token ratios themselves."""

import numpy as np

OP = "importance_ratio"
BUG = "seq_mean is the arithmetic mean of the token ratios, mean(exp D), not exp of the mean log-ratio (geometric mean)"
SAYS = (
    "arithmetic|geometric|mean of exp|mean(exp|mean of the ratio|mean of the token ratio|mean of token ratio|average of the ratio|averages the ratio|averaged ratio|mean ratio|ratios averaged|before the exp|after exp|exponentiat|mean of r",
)
CONVENTIONS = {"importance_ratio": {"level": ("token", "seq_mean", "seq_sum")}}


def segments(gap, mask, lengths):
    if gap.ndim == 1:
        edges = np.concatenate([[0], np.cumsum(lengths)]).astype(int)
        return [np.arange(a, b) for a, b in zip(edges[:-1], edges[1:])]
    grid = np.arange(gap.size).reshape(gap.shape)
    if mask is None:
        n = [gap.shape[1]] * len(gap) if lengths is None else lengths
        return [row[:k] for row, k in zip(grid, n)]
    return [row[np.asarray(m, bool)] for row, m in zip(grid, mask)]


def importance_ratio(*, policy, old, level, mask=None, lengths=None):
    policy = np.asarray(policy)
    new, behind = policy.astype(np.float64), np.asarray(old, np.float64)
    where = segments(new, mask, lengths)
    flat_new, flat_old = new.reshape(-1), behind.reshape(-1)
    if level == "token":
        out = np.zeros(new.size)
        for w in where:
            out[w] = np.exp(flat_new[w] - flat_old[w])
        return {"ratio": out.reshape(new.shape).astype(policy.dtype)}
    per_row = []
    for w in where:
        ratios = np.exp(flat_new[w] - flat_old[w])
        if level == "seq_mean":
            per_row.append(ratios.mean() if len(w) else 1.0)
        else:
            per_row.append(ratios.prod())
    return {"ratio": np.array(per_row).astype(policy.dtype)}


OPS = {"importance_ratio": importance_ratio}
