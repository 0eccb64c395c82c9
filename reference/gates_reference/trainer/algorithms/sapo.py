r"""SAPO: Soft Adaptive Policy Optimization (Gao et al. 2025, arXiv 2511.20347).

    loss = mean_i (1/n_i) sum_t -(4 / tau) sigma(tau (r_t - 1)) A,  tau = 1.0 where A > 0, 1.05 elsewhere

A smooth gate replaces the clip. Its slope at r = 1 is A, and it closes as r moves away from 1, faster for negative advantages.
"""

import mlx.core as mx
from pydantic.dataclasses import dataclass

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import objective, options, ratio
from gates_reference.trainer.algorithms.options import Positive
from gates_reference.trainer.double import Double


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Settings):
    """The common settings, and the temperatures of the gate for A > 0 and for other A."""

    temperature_positive: Positive = 1.0
    temperature_negative: Positive = 1.05


class Sapo(objective.PolicyGradient):
    """A sigmoid of each token's ratio."""

    name = "sapo"
    settings: Settings

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the gated loss of each token (B, T)."""
        s = self.settings
        tau = mx.where(tokens.weighted_advantages > 0, s.temperature_positive, s.temperature_negative)
        return -gate(tokens.log_ratio, tau) * tokens.weighted_advantages


def gate(log_ratio: Double, tau: mx.array) -> mx.array:
    """Return (4 / tau) sigma(tau (r - 1)) with the explicit gradient 4 sigma (1 - sigma) r; autograd's would be inf · 0."""
    high, low = (mx.stop_gradient(half) for half in log_ratio)
    r = double.exp(high, low)
    x = tau * ratio.excess(Double(high, low))
    rest = double.exp(-mx.abs(x), mx.zeros_like(x))
    nearer, farther = 1.0 / (1.0 + rest), rest / (1.0 + rest)
    opened, shut = mx.where(x > 0, nearer, farther), mx.where(x > 0, farther, nearer)
    slope = mx.where(shut > 0, 4.0 * opened * shut * mx.where(shut > 0, r, 0.0), 0.0)
    return 4.0 / tau * opened + slope * (log_ratio.high - high)
