r"""GSPO-token: GSPO with an advantage for each token (Zheng et al. 2025, arXiv 2507.18071, eqs. 13 and 14).

    loss = mean_i (1/n_i) sum_t -min(s_t A_t, clip(s_t) A_t),  s_t = stop(s_i) exp(policy_t - stop(policy_t))

The value of s_t is the completion's mean ratio s_i, and its gradient is that of the token's own log-prob. If A is the same for all
tokens of a completion, value and gradient equal GSPO's.
"""

import mlx.core as mx

from gates_reference.trainer.algorithms import gspo, objective, ratio
from gates_reference.trainer.double import Double

Settings = gspo.Settings


class GspoToken(objective.PolicyGradient):
    """The clipped surrogate of the completion's mean ratio, with a gradient per token."""

    name = "gspo-token"
    clip_level = "seq_mean"
    settings: gspo.Settings

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the clipped loss of each token (B, T)."""
        s = self.settings
        mean = ratio.sequence_mean(tokens.log_ratio, tokens.counts)
        own = tokens.policy - mx.stop_gradient(tokens.policy)  # 0, with a gradient
        log_ratio = Double(mx.stop_gradient(mean.high) + own, mx.broadcast_to(mean.low, own.shape))
        return ratio.clipped(log_ratio, tokens.weighted_advantages, s.epsilon_low, s.epsilon_high, s.delta)
