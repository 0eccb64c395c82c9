"""TRL's RLOO with the leave-one-out baseline computed on the group's rewards."""

import torch
import trl_base as base


def with_baseline(trainer_class):
    class WithBaseline(trainer_class):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            rewards = torch.tensor(base.Rollout.rewards).view(-1, self.num_generations)
            others = rewards.sum(dim=1, keepdim=True) / (self.num_generations - 1)
            output["advantages"] = (rewards - others).view(-1)
            return output

    return WithBaseline


if __name__ == "__main__":
    base.main("rloo", trainer_changes=with_baseline)
