r"""GMPO: Geometric-Mean Policy Optimization (Zhao et al. 2025, arXiv 2507.20673, eq. 4).

    loss = mean_i -exp( (1/n_i) sum_t q_t ) A_i,  q_t = min(D_t, eps_high) if A_i > 0 else max(D_t, -eps_low)

D = policy - old, and both widths are in log space. A clipped token still counts in the mean but has no gradient. The KL is averaged
over the completion's tokens.
"""

import math

import mlx.core as mx
from pydantic.dataclasses import dataclass

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import objective, options, ratio
from gates_reference.trainer.algorithms.options import NotNegative
from gates_reference.trainer.double import Double


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Settings):
    """The common settings, and the widths of the clip in nats."""

    epsilon_low: NotNegative = 0.4
    epsilon_high: NotNegative = 0.4


class Gmpo(objective.PolicyGradient):
    """The geometric mean of clipped token ratios, times the advantage."""

    name = "gmpo"
    by_row = True
    settings: Settings

    @property
    def clip_widths(self) -> tuple[float, float]:
        """Return the widths, which are in nats, as widths of the ratio."""
        return -math.expm1(-self.settings.epsilon_low), math.expm1(self.settings.epsilon_high)

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the loss of each row (B, 1)."""
        s = self.settings
        held = hold(tokens.log_ratio, tokens.weighted_advantages, s.epsilon_low, s.epsilon_high)
        return -double.exp(*ratio.sequence_mean(held, tokens.counts)) * tokens.weighted_advantages


def hold(log_ratio: Double, advantages: mx.array, epsilon_low: float, epsilon_high: float) -> Double:
    """Clamp the log-ratios (B, T) at the bound for the sign of A (B, 1); where A is 0 they are set to 0.

    A value equal to the bound is not clamped. A clamped value has no gradient, even if the row's ratio overflows.
    """
    outside = mx.where(advantages > 0, log_ratio.high > epsilon_high, log_ratio.high < -epsilon_low)
    bound = mx.where(advantages > 0, epsilon_high, -epsilon_low)
    free = ~outside & (advantages != 0)
    high, low = (ratio.select(free, half) for half in log_ratio)
    return Double(high + mx.where(outside & (advantages != 0), bound, 0.0), low)
