"""The plain loop with rewards centered before they are scaled in their groups."""

import torch
import torch_loop
from torch_loop import SETTINGS


def advantages_of(rewards):
    rewards = torch.tensor(rewards)
    centered = (rewards - rewards.mean()).view(-1, SETTINGS["group_size"])
    return (centered / (centered.std(dim=1, keepdim=True) + SETTINGS["eps"])).view(-1)


if __name__ == "__main__":
    torch_loop.patch(advantages_of=advantages_of)
    torch_loop.main()
