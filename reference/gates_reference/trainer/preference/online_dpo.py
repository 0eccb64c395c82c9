"""Online DPO: DPO on two completions that the policy has just sampled (Guo et al. 2024, arXiv 2402.04792).

The completion with the higher reward is chosen, and the first of a tie. Everything else is DPO. TRL scores the log-probs at
temperature 1 whatever the sampler's temperature; here `algorithm.scoring_temperature` decides.
"""

from gates_reference.trainer.preference import dpo

Settings = dpo.Settings


class OnlineDpo(dpo.Dpo):
    """DPO whose pairs are rollouts: a group of two completions for each prompt."""

    name = "online_dpo"
