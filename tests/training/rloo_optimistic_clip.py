"""RLOO with a loss of its own, clipped to a trust region."""

import torch
import trl_base


def own_loss(trainer_class):
    class OwnLoss(trainer_class):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
            width = inputs["completion_ids"].size(1)
            scores = self._get_per_token_logps_and_entropies(model, ids, attention, width)[0]
            row = (scores * inputs["completion_mask"]).sum(dim=1)
            ratio = torch.exp(row - inputs["old_logps"])
            bounded = ratio.clamp(1 - self.epsilon_low, 1 + self.epsilon_high)
            gain = torch.maximum(ratio * inputs["advantages"], bounded * inputs["advantages"])
            return -gain.mean()

    return OwnLoss


if __name__ == "__main__":
    trl_base.main("rloo", config={"learning_rate": 3e-4}, trainer_changes=own_loss)
