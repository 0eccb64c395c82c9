"""GRPO loop that scores rows at their full width."""

import torch
import torch_loop
from torch_loop import SETTINGS


def token_logps(model, batch):
    mask = batch["mask"]
    logits = model(input_ids=batch["ids"], attention_mask=mask, position_ids=torch_loop.positions(mask)).logits.float()
    logps = torch.log_softmax(logits / SETTINGS["temperature"], dim=-1)
    return logps.gather(-1, batch["ids"][..., None]).squeeze(-1) * loss_mask(batch)


def loss_mask(batch):
    return batch["completion"].float()


if __name__ == "__main__":
    torch_loop.patch(token_logps=token_logps, loss_mask=loss_mask)
    torch_loop.main()
