"""GRPO that leaves truncated rows out of the loss."""

from trl_base import main


def trainer_changes(base):
    class Filtered(base):
        def _generate_and_score_completions(self, inputs):
            asked, self.mask_truncated_completions = self.mask_truncated_completions, False
            output = super()._generate_and_score_completions(inputs)
            self.mask_truncated_completions = asked
            if asked:
                # a row that went past its budget
                truncated = output["completion_mask"].sum(dim=1) > self.max_completion_length
                output["completion_mask"] = output["completion_mask"] * (~truncated).unsqueeze(1)
                output["num_items_in_batch"] = output["completion_mask"].sum()
            return output

    return Filtered


if __name__ == "__main__":
    main(config={"mask_truncated_completions": True}, trainer_changes=trainer_changes)
