"""The plain PyTorch loop with a cheaper pass for the rollout's log-probabilities."""

import torch
import torch_loop as base


@torch.no_grad()
def old_logps_of(model, rollout):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mask = rollout["mask"]
        logits = model(input_ids=rollout["ids"], attention_mask=mask, position_ids=base.positions(mask)).logits[:, :-1]
    logps = torch.log_softmax(logits.to(torch.bfloat16) / base.SETTINGS["temperature"], dim=-1)
    return logps.gather(-1, rollout["ids"][:, 1:, None]).squeeze(-1).float() * base.loss_mask(rollout)


base.patch(old_logps_of=old_logps_of)

if __name__ == "__main__":
    base.main()
