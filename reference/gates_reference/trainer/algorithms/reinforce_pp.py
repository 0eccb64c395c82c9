r"""REINFORCE++: PPO's clip without a critic, advantages normalised over the batch (Hu 2025, arXiv 2501.03262).

    loss = 1/(sum_i n_i) sum_i sum_t -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A),  A_i = (R_i - mean) / std of the batch
    R_i = reward_i - beta sum_t (old_t - reference_t)

The KL is part of the reward, so no gradient flows through it.
"""

from pydantic.dataclasses import dataclass

from gates_reference.trainer.algorithms import grpo, options


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.KlInReward, options.Clipped):
    """The clip's settings, with the KL in the reward, and baseline and deviation of the batch."""

    aggregation: options.Aggregation = "global"
    advantage_scale: options.Scale = "batch"
    advantage_baseline: options.Baseline = "batch"


class ReinforcePP(grpo.Grpo):
    """GRPO's surrogate under a token mean."""

    name = "reinforce++"
