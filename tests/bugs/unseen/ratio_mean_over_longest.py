"""Importance ratios whose row mean divides each row's sum by the longest row of the batch."""

import numpy as np

OP = "importance_ratio"
BUG = "seq_mean divides the sum of a row by the tokens of the longest row instead of its own"
SAYS = ("longest|width|pad|max|slots|own", "divi|mean|averag|normali|denominator")
CONVENTIONS = {"importance_ratio": {"level": ("seq_mean", "seq_sum")}}


def spans(shape, mask, lengths):
    if len(shape) == 1:
        ends = np.cumsum(lengths)
        return [slice(end - n, end) for end, n in zip(ends, lengths, strict=True)]
    if mask is not None:
        return [(i, row) for i, row in enumerate(mask)]
    counts = [shape[1]] * shape[0] if lengths is None else lengths
    return [(i, slice(0, n)) for i, n in enumerate(counts)]


def importance_ratio(*, policy, old, level, mask, lengths):
    if level == "token":
        raise NotImplementedError
    rows = [policy[at].astype(np.float64) - old[at] for at in spans(policy.shape, mask, lengths)]
    total = np.array([row.sum() for row in rows])
    if level == "seq_mean":
        total = total / max(1, *(len(row) for row in rows))
    return {"ratio": np.exp(total)}


OPS = {"importance_ratio": importance_ratio}
