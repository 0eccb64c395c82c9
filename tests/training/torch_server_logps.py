"""The plain loop with the log-probabilities of the rollout aligned as an inference server would return them."""

import torch
import torch_loop

scored = torch_loop.old_logps_of


@torch.no_grad()
def old_logps_of(model, rollout):
    logps = scored(model, rollout)
    late = torch.zeros_like(logps)
    late[:, 1:] = logps[:, :-1]
    # the first token of a completion has none before it: keep its own
    mask = torch_loop.loss_mask(rollout).bool()
    first = mask & (mask.long().cumsum(dim=1) == 1)
    return torch.where(first, logps, late) * mask


if __name__ == "__main__":
    torch_loop.patch(old_logps_of=old_logps_of)
    torch_loop.main()
