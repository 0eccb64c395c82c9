"""The clipped surrogate of PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7) with an upper and a lower width of its own."""

import mlx.core as mx

from reference.trainer import double
from reference.trainer.algorithms.pairs import Pair


def clipped(log_ratio: Pair, gains: mx.array, epsilon_low: float, epsilon_high: float, delta: float | None) -> mx.array:
    """The loss -min(min(r, delta) A, clip(r, 1 - epsilon_low, 1 + epsilon_high) A) of log-ratios and A of one shape.

    Read off by the sign of A: above 0 the ratio counts up to 1 + epsilon_high, below 0 from 1 - epsilon_low up to delta (dual
    clip, arXiv 2505.07291; None for none). A bound acts strictly outside itself. Where it acts the log-ratio is replaced before
    the exponential, so that an overflow there has gradient 0 and not NaN; so it is where A is 0.
    """
    ratio = mx.stop_gradient(double.exp(*log_ratio))
    low, high = 1.0 - epsilon_low, 1.0 + epsilon_high
    cap = float("inf") if delta is None else delta
    live = mx.where(gains > 0, ratio <= high, (ratio >= low) & (ratio <= cap)) & (gains != 0)
    bound = mx.where(gains > 0, high, mx.where(ratio > cap, cap, low))
    bound = mx.where(gains == 0, 1.0, bound)
    inside = Pair(*(mx.where(live, part, 0.0) for part in log_ratio))
    return -mx.where(live, double.exp(*inside), bound) * gains
