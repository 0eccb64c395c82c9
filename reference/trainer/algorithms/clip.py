"""The clipped surrogate of PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7) with an upper and a lower width of its own."""

import mlx.core as mx

from reference.trainer import double
from reference.trainer.double import Double


def clipped(
    log_ratio: Double, advantages: mx.array, epsilon_low: float, epsilon_high: float, delta: float | None
) -> mx.array:
    """Return -min(min(r, delta) A, clip(r, 1 - epsilon_low, 1 + epsilon_high) A) for log-ratios and advantages A of one shape.

    For A > 0 the ratio counts up to 1 + epsilon_high, for A < 0 from 1 - epsilon_low up to delta (dual clip, arXiv 2505.07291;
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
