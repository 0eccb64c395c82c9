"""Leave-one-out advantages whose baseline sums the other rewards and divides by the size of the whole group."""

import numpy as np

OP = "group_advantages"
BUG = "the leave-one-out baseline divides the sum of the others by G instead of by G - 1"
SAYS = ("leave|other|baseline|out", "divi|G - 1|G − 1|size|count|mean|number")
CONVENTIONS = {
    "group_advantages": {"scale": ("none",), "ddof": (None,), "eps_mode": (None,), "baseline": ("leave-one-out",)}
}


def group_advantages(*, rewards, group_size, scale, ddof, eps, eps_mode, baseline):
    if group_size < 2:
        raise ValueError("leave-one-out needs two rewards")
    out = np.zeros(len(rewards))
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size].astype(np.float64)
        if group.max() == group.min():
            continue
        for i in range(group_size):
            others = np.delete(group, i)
            out[start + i] = group[i] - others.sum() / group_size
    return {"advantages": out.astype(rewards.dtype)}


OPS = {"group_advantages": group_advantages}
