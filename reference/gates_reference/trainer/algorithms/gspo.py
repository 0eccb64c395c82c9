r"""GSPO: Group Sequence Policy Optimization (Zheng et al. 2025, arXiv 2507.18071, eqs. 5 and 7).

    loss = mean_i -min(s_i A_i, clip(s_i) A_i),  s_i = exp( (1/n_i) sum_t policy_t - old_t )

The gradient flows through the whole mean. The clip range applies to a mean and is small: eps_low 3e-4, eps_high 4e-4. The KL is
averaged over the completion's tokens.
"""

import mlx.core as mx
from pydantic.dataclasses import dataclass

from gates_reference.trainer.algorithms import objective, options, ratio
from gates_reference.trainer.algorithms.options import NotNegative


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Clipped):
    """The common and the clip's settings, with the widths of the paper's section 5.1."""

    epsilon_low: NotNegative = 3e-4
    epsilon_high: NotNegative = 4e-4


class Gspo(objective.PolicyGradient):
    """The clipped surrogate of the mean ratio of each completion."""

    name = "gspo"
    by_row = True
    clip_level = "seq_mean"
    settings: options.Clipped

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the clipped loss of each row (B, 1)."""
        s = self.settings
        log_ratio = ratio.sequence_mean(tokens.log_ratio, tokens.counts)
        return ratio.clipped(log_ratio, tokens.weighted_advantages, s.epsilon_low, s.epsilon_high, s.delta)
