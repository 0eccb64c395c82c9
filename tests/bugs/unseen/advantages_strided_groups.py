"""Advantages of a sampler that repeats the whole list of prompts: a group is every P-th row, and rows are prompt-major."""

import numpy as np

OP = "group_advantages"
BUG = "the groups are strided: rows of different prompts are taken as one group"
SAYS = ("group|row|prompt", "stride|interleav|different|order|wrong|other|layout|major|every|transpos")
CONVENTIONS = {
    "group_advantages": {"scale": ("group", "none"), "eps_mode": ("add", "inside", None), "baseline": ("mean",)}
}


def group_advantages(*, rewards, group_size, scale, ddof, eps, eps_mode, baseline):
    grouped = rewards.astype(np.float64).reshape(group_size, -1)
    centred = grouped - grouped.mean(axis=0)
    constant = grouped.max(axis=0) == grouped.min(axis=0)
    if scale == "group":
        if group_size <= ddof:
            return {"advantages": np.zeros_like(rewards)}
        variance = grouped.var(axis=0, ddof=ddof)
        divisor = np.sqrt(variance + eps) if eps_mode == "inside" else np.sqrt(variance) + eps
        centred = centred / np.where(constant, 1, divisor)
    return {"advantages": np.where(constant, 0, centred).reshape(-1).astype(rewards.dtype)}


OPS = {"group_advantages": group_advantages}
