r"""VESPO: a smooth weight of the ratio of whole completions (arXiv 2602.10693; TRL's loss_type "vespo").

    loss = 1/(sum_i n_i) sum_i sum_t -stop(phi(W_i)) A_i policy_t,  W_i = exp( sum_t policy_t - old_t )
    phi(W) = exp(lambda) W^k exp(-lambda W),  (k, lambda) = (2, 3) where A >= 0, (3, 2) elsewhere

phi is 1 at W = 1, largest at W = k / lambda, and falls to 0 on both sides. It is a constant, so every token keeps a gradient.
"""

import mlx.core as mx
from pydantic.dataclasses import dataclass

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import objective, options, ratio
from gates_reference.trainer.algorithms.options import Positive
from gates_reference.trainer.double import Double


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Settings):
    """The common settings, with a token mean, and the exponents k and decay rates lambda for A >= 0 and for A < 0."""

    aggregation: options.Aggregation = "global"
    k_positive: Positive = 2.0
    lambda_positive: Positive = 3.0
    k_negative: Positive = 3.0
    lambda_negative: Positive = 2.0


class Vespo(objective.PolicyGradient):
    """REINFORCE per token, weighted by a smooth function of the completion's ratio."""

    name = "vespo"
    by_row = True
    settings: Settings

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the loss of each row (B, 1), the mean over its tokens."""
        s, positive = self.settings, tokens.weighted_advantages >= 0
        k = mx.where(positive, s.k_positive, s.k_negative)
        decay = mx.where(positive, s.lambda_positive, s.lambda_negative)
        weight = mx.stop_gradient(phi(ratio.sequence_sum(tokens.log_ratio), k, decay))
        mean = ratio.sequence_mean(Double(tokens.policy, mx.zeros_like(tokens.policy)), tokens.counts)
        return -weight * tokens.weighted_advantages * (mean.high + mean.low)


def phi(log_ratio: Double, k: mx.array, decay: mx.array) -> mx.array:
    """Return W^k exp(decay (1 - W)) for W = exp(log_ratio); 0 where W overflows."""
    high, low = log_ratio
    return double.exp(k * high - decay * ratio.excess(log_ratio), k * low)
