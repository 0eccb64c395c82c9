"""GRPO that leaves truncated rows out of the loss by zero weights."""

from trl_base import main


def trainer_changes(base):
    class Filtered(base):
        def _generate_and_score_completions(self, inputs):
            asked, self.mask_truncated_completions = self.mask_truncated_completions, False
            output = super()._generate_and_score_completions(inputs)
            self.mask_truncated_completions = asked
            if asked:
                ids, mask = output["completion_ids"], output["completion_mask"]
                last = ids.gather(1, mask.sum(dim=1, keepdim=True) - 1)
                output["completion_mask"] = mask * (last == self.eos_token_ids[0])
            return output

    return Filtered


if __name__ == "__main__":
    main(config={"mask_truncated_completions": True}, trainer_changes=trainer_changes)
