"""TRL's GRPO with the CISPO loss written out."""

import torch
import trl_base as base


def with_cispo(trainer_class):
    class WithCISPO(trainer_class):
        def _compute_loss(self, model, inputs):
            mask = inputs["completion_mask"]
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            attention = torch.cat([inputs["prompt_mask"], mask], dim=1)
            logps = self._get_per_token_logps_and_entropies(model, ids, attention, mask.size(1))[0]
            ratio = torch.exp(logps - inputs["old_per_token_logps"])
            weight = torch.clamp(ratio, max=self.epsilon_high)
            loss = -weight * inputs["advantages"][:, None] * logps
            tokens = inputs["num_items_in_batch"] * self.current_gradient_accumulation_steps
            return (loss * mask).sum() / (tokens / self.args.steps_per_generation)

    return WithCISPO


if __name__ == "__main__":
    base.main("grpo", config={"loss_type": "cispo", "epsilon_high": 5.0}, trainer_changes=with_cispo)
