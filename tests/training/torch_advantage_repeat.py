"""GRPO loop with advantages laid out for each token."""

import torch
import torch_loop
from torch_loop import SETTINGS


def policy_term(logps, old, advantages):
    ratio = torch.exp(logps - old)
    clipped = ratio.clamp(1 - SETTINGS["epsilon_low"], 1 + SETTINGS["epsilon_high"])
    each = advantages.repeat(logps.size(1)).view(logps.shape)
    return -torch.min(ratio * each, clipped * each)


if __name__ == "__main__":
    torch_loop.patch(policy_term=policy_term)
    torch_loop.main()
