"""GRPO with the clipped loss written as the losses of both ratios."""

import torch
import torch_loop as base


def policy_term(logps, old, advantages):
    ratio = torch.exp(logps - old)
    clipped = ratio.clamp(1 - base.SETTINGS["epsilon_low"], 1 + base.SETTINGS["epsilon_high"])
    return torch.min(-ratio * advantages[:, None], -clipped * advantages[:, None])


base.patch(policy_term=policy_term)

if __name__ == "__main__":
    base.main()
