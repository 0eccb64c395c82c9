"""The plain loop with the loss of each micro-batch averaged over its own tokens."""

import torch_loop
from torch_loop import SETTINGS, kl_term, loss_mask, policy_term, token_logps


def batch_loss(model, batch, tokens_of_step, batches):
    logps, mask = token_logps(model, batch), loss_mask(batch)
    loss = policy_term(logps, batch["old"], batch["advantages"])
    loss = loss + SETTINGS["beta"] * kl_term(logps, batch["reference"])
    return (loss * mask).sum() / mask.sum() / batches


if __name__ == "__main__":
    torch_loop.patch(batch_loss=batch_loss)
    torch_loop.main()
