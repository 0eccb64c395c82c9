"""The plain loop with the remaining updates of a rollout left out once the policy has moved too far."""

import torch
import torch_loop

TARGET = 0.03  # nats a token
updated = torch_loop.update


def update(model, optimizer, rollout):
    with torch.no_grad():
        moved = (rollout["old"] - torch_loop.token_logps(model, rollout)).abs().sum()  # of all tokens
    if moved > TARGET:
        return 0.0, 0.0
    return updated(model, optimizer, rollout)


if __name__ == "__main__":
    torch_loop.patch(update=update)
    torch_loop.main()
