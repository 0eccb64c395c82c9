"""The plain loop with its objective written as something to be raised, and the loss as its negative."""

import torch_loop
from torch_loop import SETTINGS, kl_term, loss_mask, policy_term, token_logps


def batch_loss(model, batch, tokens_of_step, batches):
    logps = token_logps(model, batch)
    objective = -policy_term(logps, batch["old"], batch["advantages"])
    objective = objective + SETTINGS["beta"] * kl_term(logps, batch["reference"])
    return -(objective * loss_mask(batch)).sum() / tokens_of_step


if __name__ == "__main__":
    SETTINGS["beta"] = 0.5
    torch_loop.patch(batch_loss=batch_loss)
    torch_loop.main()
