"""Group-relative advantages; the flat batch is folded as if the samples of a prompt were interleaved."""

import numpy as np

OP = "group_advantages"
BUG = "rewards are reshaped to (G, prompts), sample-major, though the batch is prompt-major: groups mix prompts"
SAYS = (
    "interleav|sample-major|sample major|prompt-major|prompt major|reshap|layout|stride|wrong group|wrong axis|other prompts|different prompts|across prompts|mix|transpos|grouping|grouped|repeat",
)
CONVENTIONS = {"group_advantages": {"eps_mode": ("add", "inside", "threshold", None)}}


def fold(x, g):
    return x.reshape(g, -1)


def unfold(x):
    return x.reshape(-1)


def baseline_of(x, kind):
    g = x.shape[0]
    if kind == "mean":
        return np.broadcast_to(x.mean(0, keepdims=True), x.shape)
    if kind == "leave-one-out":
        return (x.sum(0, keepdims=True) - x) / (g - 1)
    raise NotImplementedError(kind)


def divide(centred, variance, eps, mode):
    if mode == "add":
        return centred / (np.sqrt(variance) + eps)
    if mode == "inside":
        return centred / np.sqrt(variance + eps)
    if mode == "threshold":
        std = np.sqrt(variance) * np.ones_like(centred)
        small = (std < eps) | (std == 0)
        return np.where(small, 0.0, centred / np.where(small, 1.0, std))
    raise NotImplementedError(mode)


def group_advantages(*, rewards, group_size, scale, ddof, eps, eps_mode, baseline):
    rewards = np.asarray(rewards)
    x = fold(rewards.astype(np.float64), group_size)
    equal = (x == x[:1]).all(0, keepdims=True)
    adv = np.where(equal, 0.0, x - baseline_of(x, baseline))
    with np.errstate(divide="ignore", invalid="ignore"):
        if scale == "group":
            adv = divide(adv, np.where(equal, 0.0, x.var(0, ddof=ddof, keepdims=True)), eps, eps_mode)
        elif scale == "batch":
            adv = divide(adv, np.var(x, ddof=ddof), eps, eps_mode)
    adv = np.where(equal, 0.0, adv)
    return {"advantages": unfold(adv).astype(rewards.dtype)}


OPS = {"group_advantages": group_advantages}
