"""The plain PyTorch loop with a linear schedule over the run's updates."""

import torch
import torch_loop as base


UPDATES_OF_RUN = 4  # this program stops after the first rollout's two


class Schedule:
    current = None


optimizer_of = base.make_optimizer


def make_optimizer(model):
    optimizer = optimizer_of(model)
    Schedule.current = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / UPDATES_OF_RUN))
    return optimizer


def update(model, optimizer, rollout):
    batches = list(base.micro_batches(rollout))
    tokens = base.loss_mask(rollout).sum()
    total, norm = 0.0, 0.0
    for number, batch in enumerate(batches):
        loss = base.batch_loss(model, batch, tokens, len(batches))
        loss.backward()
        total += loss.item()
        if number == len(batches) - 1:
            norm = base.apply(model, optimizer)
            base.zero_grad(optimizer)
        Schedule.current.step()
    return total, norm


base.patch(make_optimizer=make_optimizer, update=update)

if __name__ == "__main__":
    base.main()
