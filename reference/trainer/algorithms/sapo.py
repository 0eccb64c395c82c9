r"""SAPO: Soft Adaptive Policy Optimization (Gao et al. 2025, arXiv 2511.20347).

    loss = mean_i (1/n_i) sum_t -(4 / tau) sigma(tau (r_t - 1)) A,  tau = 1.0 where A > 0, 1.05 elsewhere

A smooth gate in the place of the clip: its slope at r = 1 is A, and it closes as r leaves 1, faster for negative advantages.
"""

import mlx.core as mx
from pydantic.dataclasses import dataclass

from reference.trainer import double
from reference.trainer.algorithms import objective, options
from reference.trainer.algorithms.options import Positive
from reference.trainer.algorithms.pairs import Pair


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Settings):
    """The common ones, and the temperatures of the gate where A > 0 and elsewhere."""

    temperature_positive: Positive = 1.0
    temperature_negative: Positive = 1.05


class Sapo(objective.PolicyGradient):
    """A sigmoid of each token's ratio."""

    name = "sapo"
    settings: Settings

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """The gated loss of each token (B, T)."""
        s = self.settings
        tau = mx.where(tokens.gains > 0, s.temperature_positive, s.temperature_negative)
        return -gate(tokens.log_ratio, tau) * tokens.gains


def gate(log_ratio: Pair, tau: mx.array) -> mx.array:
    """The value (4 / tau) sigma(tau (r - 1)), and the gradient 4 sigma (1 - sigma) r, written down: autograd's is inf · 0.

    r - 1 = k3 + D near r = 1, where exp(D) - 1 would lose the digits of D.
    """
    high, low = (mx.stop_gradient(part) for part in log_ratio)
    ratio = double.exp(high, low)
    excess = mx.where(mx.abs(high) <= 1, double.k3(high, low) + low + high, ratio - 1.0)
    x = tau * excess
    rest = double.exp(-mx.abs(x), mx.zeros_like(x))
    nearer, farther = 1.0 / (1.0 + rest), rest / (1.0 + rest)
    opened, shut = mx.where(x > 0, nearer, farther), mx.where(x > 0, farther, nearer)
    slope = mx.where(shut > 0, 4.0 * opened * shut * mx.where(shut > 0, ratio, 0.0), 0.0)
    return 4.0 / tau * opened + slope * (log_ratio.high - high)
