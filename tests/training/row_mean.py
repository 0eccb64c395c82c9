"""TRL's GRPO with the mean over each row's tokens, as in the first GRPO."""

import torch
import trl_base as base


def with_row_mean(trainer_class):
    class WithRowMean(trainer_class):
        def _compute_loss(self, model, inputs):
            mask = inputs["completion_mask"]
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            attention = torch.cat([inputs["prompt_mask"], mask], dim=1)
            logps = self._get_per_token_logps_and_entropies(model, ids, attention, mask.size(1))[0]
            ratio = torch.exp(logps - inputs["old_per_token_logps"])
            clipped = torch.clamp(ratio, 1 - self.epsilon_low, 1 + self.epsilon_high)
            advantages = inputs["advantages"][:, None]
            loss = -torch.min(ratio * advantages, clipped * advantages)
            rows = (loss * mask).sum(dim=1) / attention.sum(dim=1)
            return rows.mean() / self.current_gradient_accumulation_steps

    return WithRowMean


if __name__ == "__main__":
    base.main("grpo", config={"loss_type": "grpo"}, trainer_changes=with_row_mean)
