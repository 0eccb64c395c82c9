r"""GMPO: Geometric-Mean Policy Optimization (Zhao et al. 2025, arXiv 2507.20673, eq. 4).

    loss = mean_i -exp( (1/n_i) sum_t q_t ) A_i,  q_t = min(D_t, eps_high) if A_i > 0 else max(D_t, -eps_low)

D = policy - old, and both widths are in log space. A clipped token keeps its place in the mean and loses its gradient. A KL is
its mean over the completion's tokens.
"""

import math

import mlx.core as mx
from pydantic.dataclasses import dataclass

from reference.trainer import double
from reference.trainer.algorithms import objective, options, ratio
from reference.trainer.algorithms.options import NotNegative
from reference.trainer.algorithms.pairs import Pair


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Settings):
    """The common ones, and the widths of the clip in nats."""

    epsilon_low: NotNegative = 0.4
    epsilon_high: NotNegative = 0.4


class Gmpo(objective.PolicyGradient):
    """The geometric mean of clipped token ratios."""

    name = "gmpo"
    by_row = True
    settings: Settings

    @property
    def clip_widths(self) -> tuple[float, float]:
        """The widths in nats as widths of the ratio."""
        return -math.expm1(-self.settings.epsilon_low), math.expm1(self.settings.epsilon_high)

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """The loss of each row (B, 1)."""
        s = self.settings
        held = hold(tokens.log_ratio, tokens.gains, s.epsilon_low, s.epsilon_high)
        return -double.exp(*ratio.sequence_mean(held, tokens.counts)) * tokens.gains


def hold(log_ratio: Pair, gains: mx.array, epsilon_low: float, epsilon_high: float) -> Pair:
    """The log-ratios (B, T), held at the bound on the side that the sign of A (B, 1) names; a bound acts outside itself.

    Where A is 0 they are held at 0. What is held has no gradient, also where the row's ratio overflows.
    """
    outside = mx.where(gains > 0, log_ratio.high > epsilon_high, log_ratio.high < -epsilon_low)
    bound = mx.where(gains > 0, epsilon_high, -epsilon_low)
    free = ~outside & (gains != 0)
    high, low = (ratio.select(free, part) for part in log_ratio)
    return Pair(high + mx.where(outside & (gains != 0), bound, 0.0), low)
