"""RLOO with advantages of its own."""

import torch
from trl_base import Rollout, main


def trainer_changes(base):
    class Baseline(base):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            rewards = torch.tensor(Rollout.rewards).view(-1, self.num_generations)
            output["advantages"] = (rewards - rewards.mean(dim=1, keepdim=True)).view(-1)
            return output

    return Baseline


if __name__ == "__main__":
    main("rloo", trainer_changes=trainer_changes)
