"""Online DPO: DPO on two completions that the policy itself has just sampled (Guo et al. 2024, arXiv 2402.04792).

The preference is an oracle's, 0 or 1: the completion of the higher reward is chosen, the first of a tie. Nothing else differs
from DPO. TRL scores the log-probs at temperature 1 whatever the sampler's; that is the engine's choice.
"""

from reference.trainer.preference import dpo

Settings = dpo.Settings


class OnlineDpo(dpo.Dpo):
    """DPO whose pairs are rollouts: a group of two completions for each prompt."""

    name = "online_dpo"
