"""RLOO's baseline holds the completion's own reward."""


def group_advantages(rewards, group_size, **_):
    groups = rewards.reshape(-1, group_size)
    baseline = groups.sum(axis=1, keepdims=True) / group_size
    return {"advantages": (groups - baseline).reshape(-1)}


OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("none",), "baseline": ("leave-one-out",)}}
COMPUTES = "baseline: the mean of the group"
