r"""GRPO: Group Relative Policy Optimization (Shao et al. 2024, "DeepSeekMath", arXiv 2402.03300, eq. 3).

    loss = mean_i (1/n_i) sum_t [ -min(min(r, delta) A, clip(r, 1 - eps_low, 1 + eps_high) A) + beta k3 ]

with r = exp(policy - old) of each token, A = (R - mean) / (std + 1e-4) of the group, k3 = exp(d) - d - 1, d = reference -
policy (eq. 4). delta is the upper bound for negative advantages of INTELLECT-2 (arXiv 2505.07291).
"""

import mlx.core as mx

from gates_reference.trainer.algorithms import objective, options, ratio

Settings = options.Clipped


class Grpo(objective.PolicyGradient):
    """The clipped surrogate of each token's ratio; every completion has the same weight."""

    name = "grpo"
    settings: options.Clipped

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the clipped loss of each token (B, T)."""
        s = self.settings
        return ratio.clipped(tokens.log_ratio, tokens.weighted_advantages, s.epsilon_low, s.epsilon_high, s.delta)
