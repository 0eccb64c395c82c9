"""The plain loop with a loss over answers of one width."""

import torch
import torch_loop


def loss_mask(batch):
    # answers start in the same column, as prompts are padded on the left
    started = batch["completion"].amax(dim=0, keepdim=True).cumsum(dim=1) > 0
    return started.expand_as(batch["completion"])[:, 1:].float()


def token_logps(model, batch):
    mask = batch["mask"]
    outputs = model(input_ids=batch["ids"], attention_mask=mask, position_ids=torch_loop.positions(mask))
    logps = torch.log_softmax(outputs.logits[:, :-1].float() / torch_loop.SETTINGS["temperature"], dim=-1)
    return logps.gather(-1, batch["ids"][:, 1:, None]).squeeze(-1) * loss_mask(batch)


if __name__ == "__main__":
    torch_loop.patch(loss_mask=loss_mask, token_logps=token_logps)
    torch_loop.main()
