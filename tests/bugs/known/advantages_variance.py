"""The root of the variance was lost when the two-pass deviation was written out."""


def group_advantages(rewards, group_size, **_):
    groups = rewards.reshape(-1, group_size)
    centred = groups - groups.mean(axis=1, keepdims=True)
    spread = (centred**2).sum(axis=1, keepdims=True) / (group_size - 1)
    return {"advantages": (centred / (spread + 1e-4)).reshape(-1)}


OPS = {"group_advantages": group_advantages}
CONVENTIONS = {
    "group_advantages": {
        "scale": ("group",),
        "ddof": (1,),
        "eps": (1e-4,),
        "eps_mode": ("add",),
        "baseline": ("mean",),
    }
}
COMPUTES = "the variance, not its root"
