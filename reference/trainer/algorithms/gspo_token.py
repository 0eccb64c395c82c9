r"""GSPO-token: GSPO with an advantage for each token (Zheng et al. 2025, arXiv 2507.18071, eqs. 13 and 14).

    loss = mean_i (1/n_i) sum_t -min(s_t A_t, clip(s_t) A_t),  s_t = stop(s_i) exp(policy_t - stop(policy_t))

The value of s_t is the completion's mean ratio s_i, its gradient that of the token's own log-prob. It equals GSPO in value and
gradient where A is the same for all tokens of a completion.
"""

import mlx.core as mx

from reference.trainer.algorithms import clip, gspo, objective, ratio
from reference.trainer.algorithms.pairs import Pair

Settings = gspo.Settings


class GspoToken(objective.PolicyGradient):
    """The clipped surrogate of the completion's mean ratio, moved by each token alone."""

    name = "gspo-token"
    clip_level = "seq_mean"
    settings: gspo.Settings

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """The clipped loss of each token (B, T)."""
        s = self.settings
        mean = ratio.sequence_mean(tokens.log_ratio, tokens.counts)
        own = tokens.policy - mx.stop_gradient(tokens.policy)  # 0, with a gradient
        log_ratio = Pair(mx.stop_gradient(mean.high) + own, mx.broadcast_to(mean.low, own.shape))
        return clip.clipped(log_ratio, tokens.gains, s.epsilon_low, s.epsilon_high, s.delta)
