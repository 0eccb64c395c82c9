"""The effective sample size as a number of samples, not as their share."""

import numpy as np


def moments(d, low, high, gains):
    r, size = np.exp(d), np.abs(d)
    found = {
        "mean": r.mean(),
        "max_abs": size.max(),
        "p99_abs": np.quantile(size, 0.99),
        "k3": (r - 1 - d).mean(),
        "chi2": np.expm1(2 * d).mean(),
        "ess_per_n": r.sum() ** 2 / (r * r).sum(),
        "mult_err": np.exp(size).mean(),
        "outside_low": (r < 1 - low).mean(),
        "outside_high": (r > 1 + high).mean(),
    }
    if gains is not None:
        found["clipped_low"] = ((r < 1 - low) & (gains < 0)).mean()
        found["clipped_high"] = ((r > 1 + high) & (gains > 0)).mean()
    return found


def ratio_statistics(policy, behaviour, *, epsilon_low, epsilon_high, advantages, mask=None, lengths=None):
    if policy.ndim == 1:
        raise NotImplementedError("rows only")
    if mask is None:
        mask = np.ones(policy.shape, bool) if lengths is None else np.arange(policy.shape[1]) < lengths[:, None]
    d = np.where(mask, policy.astype(np.float64) - behaviour, 0)
    some = mask.any(1)
    by_token = None if advantages is None else np.broadcast_to(advantages[:, None], mask.shape)[mask]
    sums = d.sum(1)[some]
    found = moments(d[mask], epsilon_low, epsilon_high, by_token)
    rows = moments(sums, epsilon_low, epsilon_high, None if advantages is None else advantages[some])
    found |= {f"seq_sum_{name}": value for name, value in rows.items()}
    found |= {"min_sequence_ratio": np.exp(sums).min(), "max_sequence_ratio": np.exp(sums).max()}
    return {name: float(value) for name, value in found.items()}


OPS = {"ratio_statistics": ratio_statistics}
COMPUTES = "the effective sample size, not over n"
