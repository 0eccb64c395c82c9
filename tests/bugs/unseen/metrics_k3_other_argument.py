"""Ratio statistics whose k3 takes behaviour - policy, the sign that the KL to the reference has."""

import numpy as np

OP = "ratio_statistics"
BUG = "the k3 of the statistics takes -D instead of D"
SAYS = ("k3", "-D|−D|sign|exchang|swap|revers|argument|behaviour - policy|behaviour − policy|negat|direction")
CONVENTIONS = {"ratio_statistics": {"dtype": ("float32", "float64")}}


def describe(log_ratio, adv, low, high):
    ratio, size = np.exp(log_ratio), np.abs(log_ratio)
    below, above = ratio < 1 - low, ratio > 1 + high
    numbers = {
        "mean": ratio.mean(),
        "max_abs": size.max(),
        "p99_abs": np.quantile(size, 0.99),
        "k3": np.mean(np.expm1(-log_ratio) + log_ratio),
        "chi2": np.mean(np.expm1(2 * log_ratio)),
        "ess_per_n": ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum()),
        "mult_err": np.exp(size).mean(),
        "outside_low": below.mean(),
        "outside_high": above.mean(),
    }
    if adv is not None:
        numbers["clipped_low"] = (below & (adv < 0)).mean()
        numbers["clipped_high"] = (above & (adv > 0)).mean()
    return numbers


def ratio_statistics(*, policy, behaviour, epsilon_low, epsilon_high, advantages, mask, lengths):
    if policy.ndim == 1:
        owner = np.repeat(np.arange(len(lengths)), lengths)
        keep = np.ones(len(policy), bool)
    else:
        keep = np.ones(policy.shape, bool) if mask is None else mask
        if lengths is not None:
            keep = np.arange(policy.shape[1]) < lengths[:, None]
        owner = np.nonzero(keep)[0]
    log_ratio = policy[keep].astype(np.float64) - behaviour[keep]
    rows = np.unique(owner)
    sums = np.array([log_ratio[owner == row].sum() for row in rows])
    by_token = None if advantages is None else advantages[owner]
    by_row = None if advantages is None else advantages[rows]
    result = describe(log_ratio, by_token, epsilon_low, epsilon_high)
    for name, value in describe(sums, by_row, epsilon_low, epsilon_high).items():
        result["seq_sum_" + name] = value
    result["min_sequence_ratio"], result["max_sequence_ratio"] = np.exp(sums.min()), np.exp(sums.max())
    return {name: float(value) for name, value in result.items()}


OPS = {"ratio_statistics": ratio_statistics}
