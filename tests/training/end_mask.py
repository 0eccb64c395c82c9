"""TRL's GRPO with a completion mask cut at the end token, made from the tokens."""

import torch
import trl_base as base


def masked(trainer_class):
    class Masked(trainer_class):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            ids = output["completion_ids"]
            end = (ids == self._tokenizer.eos_token_id).int().argmax(dim=1)
            output["completion_mask"] = (torch.arange(ids.size(1))[None] <= end[:, None]).long()
            output["num_items_in_batch"] = output["completion_mask"].sum()
            return output

    return Masked


if __name__ == "__main__":
    base.main("grpo", trainer_changes=masked)
