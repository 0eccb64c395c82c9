"""The divergence from the reference policy, estimated on sampled tokens, with d = reference - policy.

    k1 = -d      k2 = d^2 / 2      k3 = exp(d) - d - 1

Source: J. Schulman (2020), "Approximating KL divergence", http://joschu.net/blog/kl-approx.html. In a loss the estimate may be
multiplied by the unclipped, differentiable ratio, which corrects it for tokens that an older policy sampled.
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer import double
from reference.trainer.algorithms import ratio
from reference.trainer.double import Double

OVERFLOW = 88.0
"""Nats; exp of more overflows float32."""


def token_kl(policy: mx.array, reference: mx.array, estimator: str = "k3") -> mx.array:
    """Return the estimate of each token (B, T), in nats; `reference` is a constant."""
    d, error = double.difference(mx.stop_gradient(reference), policy)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return 0.5 * d * d + mx.stop_gradient(d) * error
    return double.k3(d, error)


def weighted(
    values: mx.array,
    policy: mx.array,
    reference: mx.array,
    log_ratio: Double,
    counts: mx.array,
    *,
    estimator: str,
    kl_ratio: str,
) -> mx.array:
    """Multiply the estimates (B, T) by nothing, by the token's ratio, or by the mean ratio of the completion, with gradients.

    With the token's ratio the slope of k3 is r (k3 + 1 - exp d) = -r d. Autograd would subtract two large numbers, so the slope is
    given explicitly.
    """
    if kl_ratio == "none":
        return values
    if kl_ratio == "sequence":
        return double.exp(*ratio.sequence_mean(log_ratio, counts)) * values
    empty = (mx.stop_gradient(values) == 0) & (log_ratio.high > OVERFLOW)  # 0 times inf
    of_token = double.exp(*(mx.where(empty, 0.0, half) for half in log_ratio))
    if estimator != "k3":
        return of_token * values
    slope = mx.stop_gradient(of_token * (policy - reference))
    return mx.stop_gradient(of_token * values) + slope * (policy - mx.stop_gradient(policy))


def in_reward(old: mx.array, reference: mx.array, mask: mx.array) -> NDArray[np.float64]:
    """Sum k1 = old - reference over each completion (B,), a constant; the reward is lowered by beta times this sum.

    Source: Ahmadian et al. (2024), arXiv 2402.14740, eq. 1, the KL of the sampled completion as part of its reward.
    """
    difference = double.difference(*(ratio.select(mask, x) for x in (old, reference)))
    high, low = double.row_sum(difference)
    return np.array(high, np.float64)[:, 0] + np.array(low, np.float64)[:, 0]
