"""RLOO advantages computed group by group; the array is overwritten while it is still being read."""

import numpy as np

OP = "group_advantages"
BUG = "the leave-one-out mean reads rewards of the group that the loop has already overwritten by advantages (in-place update)"
SAYS = (
    "in place|in-place|overwrit|alias|already updated|already changed|already replaced|mutat|sequentially|one after|order of the samples|already been|modified",
)
CONVENTIONS = {
    "group_advantages": {
        "baseline": ("leave-one-out",),
        "scale": ("none",),
        "ddof": (None,),
        "eps": (None,),
        "eps_mode": (None,),
    }
}


def mean_of_others(group, i):
    others = np.delete(group, i)
    return others.mean()


def rloo_advantages(*, rewards, group_size, scale, ddof=None, eps=None, eps_mode=None, baseline):
    if baseline != "leave-one-out" or scale != "none":
        raise NotImplementedError("rloo only")
    source = np.asarray(rewards)
    out = source.astype(np.float64)
    for start in range(0, len(out), group_size):
        group = out[start : start + group_size]
        if group.max() == group.min():
            group[:] = 0.0
            continue
        scores = group
        for i in range(group_size):
            group[i] = scores[i] - mean_of_others(scores, i)
    return {"advantages": out.astype(source.dtype)}


OPS = {"group_advantages": rloo_advantages}
