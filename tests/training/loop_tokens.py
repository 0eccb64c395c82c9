"""GRPO with the loss of each micro-batch averaged over its tokens, for gradient accumulation."""

import torch_loop as base


def batch_loss(model, batch, tokens_of_step, batches):
    """Return this micro-batch's share of the step's loss."""
    logps = base.token_logps(model, batch)
    loss = base.policy_term(logps, batch["old"], batch["advantages"])
    loss = loss + base.SETTINGS["beta"] * base.kl_term(logps, batch["reference"])
    mask = base.loss_mask(batch)
    return (loss * mask).sum() / mask.sum() / batches


base.patch(batch_loss=batch_loss)

if __name__ == "__main__":
    base.main()
