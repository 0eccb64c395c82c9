"""Differences of two policies' log-probs: importance ratios, PPO's clip of a ratio, and estimates of the KL divergence.

A log-ratio is policy - old of a token, or its mean or sum over a completion. Log-ratios are double-floats until `double.exp`: half
an ulp of a difference of 10 is 5 ulp of the ratio.

The divergence from the reference policy is estimated on sampled tokens, with d = reference - policy:

    k1 = -d      k2 = d^2 / 2      k3 = exp(d) - d - 1

Source: J. Schulman (2020), "Approximating KL divergence", http://joschu.net/blog/kl-approx.html. In a loss the estimate may be
multiplied by the unclipped, differentiable ratio, which corrects it for tokens that an older policy sampled.
"""

from typing import Any, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer import double
from gates_reference.trainer.double import Double

OVERFLOW = 88.0
"""Nats; exp of more overflows float32."""


def select(mask: mx.array, values: mx.array) -> mx.array:
    """Return the values where the mask is true and 0 elsewhere; the gradient is selected in the same way.

    MLX's own gradient of `where` multiplies by the mask, which gives NaN in masked slots of a row whose ratio overflows.
    """
    shape = mx.broadcast_shapes(mask.shape, values.shape)
    return cast("mx.array", _select_rule(mx.broadcast_to(mask, shape), mx.broadcast_to(values, shape)))


@mx.custom_function
def _select_rule(mask: mx.array, values: mx.array) -> mx.array:
    return mx.where(mask, values, mx.zeros((), values.dtype))


@_select_rule.vjp
def _select_vjp(primals: tuple[mx.array, mx.array], cotangent: mx.array, _: mx.array) -> tuple[mx.array, mx.array]:
    return mx.zeros_like(primals[0]), mx.where(primals[0], cotangent, mx.zeros((), cotangent.dtype))


def token(policy: mx.array, old: mx.array | None) -> Double:
    """Return the log-ratios policy - old (B, T); `old` is a constant, and None means the policy itself (ratio 1)."""
    return double.difference(policy, mx.stop_gradient(policy if old is None else old))


def sequence_mean(log_ratio: Double, counts: mx.array) -> Double:
    """Average the log-ratio over each completion (B, 1), as in GSPO (arXiv 2507.18071, eq. 7); `counts` (B, 1) are its tokens."""
    return double.row_mean(log_ratio, mx.maximum(counts, 1.0))


def sequence_sum(log_ratio: Double) -> Double:
    """Sum the log-ratio over each completion (B, 1), which gives the likelihood ratio of the whole sequence."""
    return double.row_sum(log_ratio)


def excess(log_ratio: Double) -> mx.array:
    """Return r - 1; near r = 1 as k3 + D, because exp(D) - 1 would lose digits of D."""
    high, low = log_ratio
    return mx.where(mx.abs(high) <= 1, double.k3(high, low) + low + high, double.exp(high, low) - 1.0)


def clipped(
    log_ratio: Double, advantages: mx.array, epsilon_low: float, epsilon_high: float, delta: float | None
) -> mx.array:
    """Return -min(min(r, delta) A, clip(r, 1 - epsilon_low, 1 + epsilon_high) A) for log-ratios and advantages A of one shape.

    Source: PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7), with an upper and a lower width of its own. For A > 0 the ratio counts up to 1 + epsilon_high, for A < 0 from 1 - epsilon_low up to delta (dual clip, arXiv 2505.07291;
    None: no such bound). A ratio equal to a bound is not clipped. Where a bound acts, or A is 0, the log-ratio is replaced before
    the exponential, so that an overflow gives gradient 0 and not NaN.
    """
    ratio = mx.stop_gradient(double.exp(*log_ratio))
    low, high = 1.0 - epsilon_low, 1.0 + epsilon_high
    cap = float("inf") if delta is None else delta
    live = mx.where(advantages > 0, ratio <= high, (ratio >= low) & (ratio <= cap)) & (advantages != 0)
    bound = mx.where(advantages > 0, high, mx.where(ratio > cap, cap, low))
    bound = mx.where(advantages == 0, 1.0, bound)
    inside = Double(*(mx.where(live, half, 0.0) for half in log_ratio))
    return -mx.where(live, double.exp(*inside), bound) * advantages


def token_kl(policy: mx.array, reference: mx.array, estimator: str = "k3") -> mx.array:
    """Return the estimate of each token (B, T), in nats; `reference` is a constant."""
    d, error = double.difference(mx.stop_gradient(reference), policy)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return 0.5 * d * d + mx.stop_gradient(d) * error
    return double.k3(d, error)


def weighted_kl(
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
        return double.exp(*sequence_mean(log_ratio, counts)) * values
    empty = (mx.stop_gradient(values) == 0) & (log_ratio.high > OVERFLOW)  # 0 times inf
    of_token = double.exp(*(mx.where(empty, 0.0, half) for half in log_ratio))
    if estimator != "k3":
        return of_token * values
    slope = mx.stop_gradient(of_token * (policy - reference))
    return mx.stop_gradient(of_token * values) + slope * (policy - mx.stop_gradient(policy))


def kl_in_reward(old: Any, reference: Any, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum k1 = old - reference (B, T) over each completion (B,), in float64; the reward is lowered by beta times this sum.

    Source: Ahmadian et al. (2024), arXiv 2402.14740, eq. 1, the KL of the sampled completion as part of its reward.
    """
    terms = np.array(old, np.float64) - np.array(reference, np.float64)
    return np.asarray(np.where(mask, terms, 0.0).sum(axis=1))
