"""Statistics of the policy against its behaviour policy, per token and per sequence; the gaps' sizes lose the negative ones."""

import numpy as np

OP = "ratio_statistics"
BUG = "the absolute value is taken after the maximum and the percentile, |max D| and |p99 D|, so large negative log-ratios are missed"
SAYS = ("absolute|abs|sign|negative|magnitude", "max|percentile|p99|quantile|largest")
CONVENTIONS = {}


def magnitude(d):
    """Largest and 99th percentile of the gaps."""
    return abs(np.max(d)), abs(np.percentile(d, 99))


def describe(d, low, high):
    r = np.exp(d)
    biggest, p99 = magnitude(d)
    return {
        "mean": r.mean(),
        "max_abs": biggest,
        "p99_abs": p99,
        "k3": (np.expm1(d) - d).mean(),
        "chi2": np.expm1(2 * d).mean(),
        "ess_per_n": r.sum() ** 2 / (len(r) * (r**2).sum()),
        "mult_err": np.exp(np.abs(d)).mean(),
        "outside_low": (r < 1 - low).mean(),
        "outside_high": (r > 1 + high).mean(),
    }


def split_rows(gap, mask, lengths):
    if gap.ndim == 1:
        return np.split(gap, np.cumsum(lengths)[:-1])
    if mask is not None:
        return [row[np.asarray(m, bool)] for row, m in zip(gap, mask)]
    if lengths is not None:
        return [row[:n] for row, n in zip(gap, lengths)]
    return list(gap)


def ratio_statistics(*, policy, behaviour, epsilon_low, epsilon_high, advantages=None, mask=None, lengths=None):
    with np.errstate(invalid="ignore"):
        gap = np.asarray(policy, np.float64) - np.asarray(behaviour, np.float64)
    every = split_rows(gap, mask, lengths)
    rows = [r for r in every if len(r)]
    tokens = np.concatenate(rows)
    sums = np.array([r.sum() for r in rows])
    out = describe(tokens, epsilon_low, epsilon_high)
    out.update({"seq_sum_" + k: v for k, v in describe(sums, epsilon_low, epsilon_high).items()})
    out["min_sequence_ratio"], out["max_sequence_ratio"] = np.exp(sums.min()), np.exp(sums.max())
    if advantages is not None:
        a = np.asarray(advantages, np.float64)[[len(r) > 0 for r in every]]
        per_token = np.repeat(a, [len(r) for r in rows])
        for prefix, r, sign in (("", np.exp(tokens), per_token), ("seq_sum_", np.exp(sums), a)):
            out[prefix + "clipped_low"] = ((r < 1 - epsilon_low) & (sign < 0)).mean()
            out[prefix + "clipped_high"] = ((r > 1 + epsilon_high) & (sign > 0)).mean()
    return {k: float(v) for k, v in out.items()}


OPS = {"ratio_statistics": ratio_statistics}
