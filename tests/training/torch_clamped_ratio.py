"""The plain loop with the ratio clamped to the trust region."""

import torch
import torch_loop
from torch_loop import SETTINGS


def policy_term(logps, old, advantages):
    ratio = torch.exp(logps - old).clamp(1 - SETTINGS["epsilon_low"], 1 + SETTINGS["epsilon_high"])
    return -ratio * advantages[:, None]


if __name__ == "__main__":
    torch_loop.patch(policy_term=policy_term)
    torch_loop.main()
