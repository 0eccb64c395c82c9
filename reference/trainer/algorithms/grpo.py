r"""GRPO: Group Relative Policy Optimization (Shao et al. 2024, "DeepSeekMath", arXiv 2402.03300, eq. 3).

    loss = mean_i (1/n_i) sum_t [ -min(min(r, delta) A, clip(r, 1 - eps_low, 1 + eps_high) A) + beta k3 ]

with r = exp(policy - old) of each token, A = (R - mean) / (std + 1e-4) of the group, k3 = exp(d) - d - 1, d = reference -
policy (eq. 4). delta is the upper bound for negative advantages of INTELLECT-2 (arXiv 2505.07291).
"""

import mlx.core as mx
import numpy as np

from reference.trainer import precise
from reference.trainer.algorithms import clip, kl, objective, options, ratio
from reference.trainer.algorithms.protocol import Scored, whole_step

Settings = options.Clipped


class Grpo(objective.PolicyGradient):
    """The clipped surrogate of each token's ratio; every completion counts the same."""

    name = "grpo"
    settings: options.Clipped

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """The clipped loss of each token (B, T)."""
        s = self.settings
        return clip.clipped(tokens.log_ratio, tokens.gains, s.epsilon_low, s.epsilon_high, s.delta)


# What `reference.trainer.loop` still calls by name; it goes when the loop holds an `Algorithm`.


def select(mask: mx.array, values: mx.array) -> mx.array:
    """As `ratio.select`."""
    return ratio.select(mask, values)


def token_ratio(policy: mx.array, old: mx.array) -> mx.array:
    """The ratio exp(policy - old) of each token (B, T)."""
    return precise.exp(*ratio.token(policy, old))


def token_kl(policy: mx.array, reference: mx.array) -> mx.array:
    """As `kl.token_kl`, k3."""
    return kl.token_kl(policy, reference)


def loss(
    policy: mx.array,
    old: mx.array | None,
    reference: mx.array | None,
    advantages: mx.array,
    mask: mx.array,
    settings: Settings,
) -> mx.array:
    """The GRPO loss of a whole step given as arrays; no `old` means one on-policy update."""
    groups = np.zeros(len(mask), np.int64)
    whole = whole_step(np.array(mask).sum(axis=1), groups, parts=1, max_length=mask.shape[1])
    return Grpo(settings).loss(Scored(policy, mask, advantages, groups, old, reference), whole).value
