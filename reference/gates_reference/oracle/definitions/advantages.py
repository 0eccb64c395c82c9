"""Advantages of completions against the other completions of their prompt. Values are finite rewards that are scored."""

import math

import numpy as np

from gates_reference.oracle.inputs import Floats


def advantages(scored: Floats, every: Floats, baseline: str, divisor: float) -> Floats:
    """The advantage A_i = (R_i - baseline_i) / divisor. GRPO, DeepSeekMath (arXiv 2402.03300), section 4.1.2."""
    return (scored - baselines(scored, every, baseline)) / divisor


def baselines(scored: Floats, every: Floats, baseline: str) -> Floats:
    """What is subtracted from each of a group's rewards; `every` holds those of the batch."""
    if baseline == "none":  # REINFORCE
        return np.zeros(scored.shape)
    if baseline == "batch":  # REINFORCE++ (arXiv 2501.03262), section 3
        return np.full(scored.shape, mean(every))
    return means(scored) if baseline == "mean" else means_of_the_others(scored)


def means(scored: Floats) -> Floats:
    """The mean of the group's rewards, for each of them."""
    return np.full(scored.shape, mean(scored))


def means_of_the_others(scored: Floats) -> Floats:
    """The mean of the group's other rewards, for each. RLOO (arXiv 2402.14740), its leave-one-out estimator."""
    return np.array([mean(np.concatenate((scored[:i], scored[i + 1 :]))) for i in range(scored.size)])


def mean(values: Floats) -> float:
    """The mean, sum x / n, with a correctly rounded sum; a power of two keeps that in range and changes no bit."""
    exponent = _exponent(values)
    return math.ldexp(math.fsum(np.ldexp(values, -exponent).tolist()) / values.size, exponent)


def std(values: Floats, ddof: int) -> float:
    """The standard deviation, sqrt(sum (x - mean)**2 / (n - ddof)), in the range of `mean`."""
    exponent = _exponent(values)
    scaled = np.ldexp(values, -exponent)
    deviations = scaled - math.fsum(scaled.tolist()) / scaled.size
    return math.ldexp(math.sqrt(math.fsum((deviations**2).tolist()) / (values.size - ddof)), exponent)


def divisor(values: Floats, ddof: int, eps: float, eps_mode: str) -> float:
    """The spread: std + eps ("add"), sqrt(var + eps) ("inside"), max(std, eps) ("floor"), or std ("threshold").

    It is inf if std < eps under "threshold", where the advantage is 0; and so under "threshold-add", elsewhere std + eps.
    """
    spread = std(values, ddof)
    if eps_mode == "add":
        return spread + eps
    if eps_mode == "inside":
        return math.hypot(spread, math.sqrt(eps))  # sqrt(var + eps) without overflow
    if eps_mode == "floor":
        return max(spread, eps)
    if spread < eps:
        return math.inf
    return spread + eps if eps_mode == "threshold-add" else spread


def weighted_sums(rewards: Floats, z_scores: Floats, weights: Floats) -> Floats:
    """The sum over f of w_f z_f of each row, NaN for one whose rewards are all unscored. GDPO (arXiv 2601.05242).

    The z-score of an unscored reward is 0.
    """
    return np.where(np.all(np.isnan(rewards), axis=1), np.nan, np.sum(z_scores * weights, axis=1))


def _exponent(values: Floats) -> int:
    return math.frexp(np.abs(values).max())[1]
