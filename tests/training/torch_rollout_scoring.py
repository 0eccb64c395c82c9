"""The plain loop with the rollout scored in one plain forward pass."""

import torch
import torch_loop
from torch_loop import SETTINGS, loss_mask


@torch.no_grad()
def old_logps_of(model, rollout):
    logits = model(input_ids=rollout["ids"]).logits[:, :-1].float()
    logps = torch.log_softmax(logits / SETTINGS["temperature"], dim=-1)
    return logps.gather(-1, rollout["ids"][:, 1:, None]).squeeze(-1) * loss_mask(rollout)


if __name__ == "__main__":
    torch_loop.patch(old_logps_of=old_logps_of)
    torch_loop.main()
