"""The plain loop at a sampling temperature of 0.7."""

import torch
import torch_loop
from torch_loop import SETTINGS, loss_mask, positions


def token_logps(model, batch):
    mask = batch["mask"]
    logits = model(input_ids=batch["ids"], attention_mask=mask, position_ids=positions(mask)).logits[:, :-1].float()
    logps = torch.log_softmax(logits, dim=-1)
    return logps.gather(-1, batch["ids"][:, 1:, None]).squeeze(-1) * loss_mask(batch)


if __name__ == "__main__":
    SETTINGS["temperature"] = 0.7
    torch_loop.patch(token_logps=token_logps)
    torch_loop.main()
