"""The plain PyTorch loop with the step's loss kept as one running tensor."""

import torch_loop as base


def update(model, optimizer, rollout):
    batches = list(base.micro_batches(rollout))
    tokens = base.loss_mask(rollout).sum()
    total = 0.0
    for batch in batches:
        total = total + base.batch_loss(model, batch, tokens, len(batches))
        total.backward(retain_graph=True)
        base.after_backward(model)
    norm = base.apply(model, optimizer)
    base.zero_grad(optimizer)
    return total.item(), norm


base.patch(update=update)

if __name__ == "__main__":
    base.main()
