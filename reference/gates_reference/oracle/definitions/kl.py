"""The divergence of the policy from its reference, estimated per sampled token or summed over the vocabulary.

`d` is reference - policy log-probs in nats. Schulman (2020), "Approximating KL divergence".
"""

import math

import numpy as np

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.inputs import Bools, Floats

ESTIMATORS = ("k1", "k2", "k3")
SERIES_RADIUS = 2.0  # nats: the series up to here, exp(d) - 1 - d further out, where nothing cancels
SERIES_ORDER = 30  # 2**30 / 30! is 4e-24, far below half an ulp of the sum


def k1(d: Exact) -> Floats:
    """The estimate k1 = -d."""
    return -d.value + 0.0  # + 0.0 turns -0.0 into 0.0


def k2(d: Exact) -> Floats:
    """The estimate k2 = d**2 / 2."""
    return exact.square(d) / 2.0


def k3(d: Exact) -> Floats:
    """The estimate k3 = exp(d) - d - 1; by the rest of d it moves expm1(d) rest, for its derivative is exp(d) - 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        return k3_of_rounded(d.value) + exact.first_order(np.expm1(d.value) * d.rest)


def k3_of_rounded(d: Floats) -> Floats:
    """The estimate k3 = exp(d) - d - 1 = sum_{k >= 2} d**k / k!, the series where the terms of the difference would cancel."""
    near = np.where(np.abs(d) <= SERIES_RADIUS, d, 0.0)
    series = np.ones_like(near)
    for order in range(SERIES_ORDER, 2, -1):  # d**2 / 2 (1 + d / 3 (1 + d / 4 (...)))
        series = 1.0 + series * near / order
    with np.errstate(over="ignore", invalid="ignore"):
        far = np.where(d == np.inf, np.inf, np.exp(d) - 1.0 - d)
    return np.where(np.abs(d) <= SERIES_RADIUS, near**2 / 2.0 * series, far)


def estimate(d: Exact, estimator: str) -> Floats:
    """The estimate of this name."""
    return {"k1": k1, "k2": k2, "k3": k3}[estimator](d)


def clamped(values: Floats, most: float) -> Floats:
    """Estimates bounded to [-most, most], as verl bounds its `low_var_kl`: verl/trainer/ppo/core_algos.py, kl_penalty."""
    return np.clip(values, -most, most)


def slope(d: Exact, estimator: str) -> Floats:
    """The derivative by the policy's log-prob, where d falls as that rises: 1 (k1), -d (k2), 1 - exp(d) (k3)."""
    if estimator == "k1":
        return np.ones(d.value.shape)
    return -d.value if estimator == "k2" else -exact.expm1(d)


def product_slope(d: Exact, estimator: str) -> Floats:
    """The derivative of r k by the policy's log-prob, over r: k + dk, which for k3 is (exp(d) - d - 1) + (1 - exp(d)) = -d."""
    return -d.value if estimator == "k3" else estimate(d, estimator) + slope(d, estimator)


def row_mean(values: Floats, counts: Bools) -> Floats:
    """The mean, (B, 1), of each row's counted slots; 0 for a row without one."""
    tokens = np.maximum(np.sum(counts, axis=1, keepdims=True), 1)
    return np.asarray(np.sum(np.where(counts, values, 0.0), axis=1, keepdims=True) / tokens)


def vocabulary_terms(policy: Floats, reference: Floats) -> Floats:
    """The terms p_v (log p_v - log q_v), (N, V); 0 where p = 0, +inf where only q = 0. Kullback and Leibler (1951), eq. 2.4."""
    possible = policy > -np.inf
    difference = np.subtract(policy, reference, out=np.zeros(policy.shape), where=possible)
    finite = possible & (difference < np.inf)
    return np.multiply(np.exp(policy), difference, out=difference.copy(), where=finite)  # any p > 0 times inf is inf


def vocabulary_sums(terms: Floats) -> list[float]:
    """The divergence KL = sum_v p_v (log p_v - log q_v), of each row. Kullback and Leibler (1951), eq. 2.4."""
    return [math.fsum(row) if np.all(np.isfinite(row)) else float(np.sum(row)) for row in terms]
