r"""RLOO: REINFORCE leave-one-out (Ahmadian et al. 2024, "Back to basics", arXiv 2402.14740).

    loss = mean_i -r_i A_i,  r_i = exp( sum_t policy_t - old_t ),  A_i = R_i - mean of the other completions' R
    R_i = reward_i - beta sum_t (old_t - reference_t)

The KL is part of the reward, so no gradient flows through it. On-policy, r_i is 1 and the gradient is that of REINFORCE over whole
sequences.
"""

import mlx.core as mx
from pydantic.dataclasses import dataclass

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import objective, options, ratio
from gates_reference.trainer.double import Double


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.KlInReward):
    """The common settings, with the KL in the reward and a leave-one-out baseline."""

    advantage_scale: options.Scale = "none"
    advantage_baseline: options.Baseline = "leave-one-out"


class Rloo(objective.PolicyGradient):
    """The ratio of whole completions times their advantage, not clipped."""

    name = "rloo"
    by_row = True

    def surrogate(self, tokens: objective.Tokens) -> mx.array:
        """Return the loss of each row (B, 1); it is 0 where the advantage is 0, even if the ratio overflows."""
        log_ratio = ratio.sequence_sum(tokens.log_ratio)
        live = Double(*(ratio.select(tokens.weighted_advantages != 0, half) for half in log_ratio))
        return -double.exp(*live) * tokens.weighted_advantages
