"""GRPO loop whose update is written as step, reset, backward."""

import torch_loop
from torch_loop import SETTINGS


def update(model, optimizer, rollout):
    norm = torch_loop.apply(model, optimizer)
    optimizer.zero_grad()
    batches = list(torch_loop.micro_batches(rollout))
    tokens = torch_loop.loss_mask(rollout).sum()
    total = 0.0
    for batch in batches:
        loss = torch_loop.batch_loss(model, batch, tokens, len(batches))
        loss.backward()
        total += loss.item()
    return total, norm


if __name__ == "__main__":
    SETTINGS["updates"] = 3
    torch_loop.patch(update=update)
    torch_loop.main()
