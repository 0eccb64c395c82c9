"""The plain loop with its clip range in a helper."""

import torch
import torch_loop
from torch_loop import SETTINGS


def clip_range(high, low):
    return 1 - low, 1 + high


def policy_term(logps, old, advantages):
    ratio = torch.exp(logps - old)
    clipped = ratio.clamp(*clip_range(SETTINGS["epsilon_low"], SETTINGS["epsilon_high"]))
    return -torch.min(ratio * advantages[:, None], clipped * advantages[:, None])


if __name__ == "__main__":
    SETTINGS["epsilon_high"] = 0.4
    torch_loop.patch(policy_term=policy_term)
    torch_loop.main()
