"""GRPO with a completion mask of its own, cut at the end token."""

import torch
from trl_base import main


def trainer_changes(base):
    class Masked(base):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            ends = torch.isin(output["completion_ids"], torch.tensor(self.eos_token_ids))
            before_end = ends.cumsum(dim=1) == 0
            output["completion_mask"] = output["completion_mask"] * before_end
            output["num_items_in_batch"] = output["completion_mask"].sum()
            return output

    return Masked


if __name__ == "__main__":
    main(trainer_changes=trainer_changes)
