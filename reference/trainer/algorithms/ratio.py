"""Importance ratios in log space: policy - old of each token, its mean and sum over a completion, and PPO's clip of a ratio.

Log-ratios are double-floats until `double.exp`: half an ulp of a difference of 10 is 5 ulp of the ratio.
"""

from typing import cast

import mlx.core as mx

from reference.trainer import double
from reference.trainer.double import Double


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
