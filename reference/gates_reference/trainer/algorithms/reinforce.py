r"""REINFORCE: the policy gradient with a baseline (Williams 1992, "Simple statistical gradient-following algorithms", section 5).

    loss = mean_i (1/n_i) sum_t -A policy_t

There is no ratio: the loss does not read the old log-probs, so that several updates of a rollout are off-policy and uncorrected.
"""

import mlx.core as mx
from pydantic.dataclasses import dataclass

from gates_reference.trainer.algorithms import objective, options


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Settings):
    """The common settings, with the mean reward of the batch as the baseline."""

    advantage_scale: options.Scale = "none"
    advantage_baseline: options.Baseline = "batch"


class Reinforce(objective.PolicyGradient):
    """The log-prob of each token times its advantage."""

    name = "reinforce"

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the loss of each token (B, T)."""
        return -tokens.weighted_advantages * tokens.policy
