"""Generalised advantage estimation over rows of tokens; a step looks at the end-of-episode flag of the step after it."""

import numpy as np

OP = "gae"
BUG = "the terminal flag is read one step late: done[t + 1] decides whether step t bootstraps, not done[t]"
SAYS = (
    "terminal|done|episode end|end of the episode|end of episode|flag",
    "shift|next|one step|off by one|off-by-one|t + 1|t+1|late|early|following|after it|another token|neighbour",
)
CONVENTIONS = {"gae": {"rows": ("all", "mask", "holes", "lengths", "flat")}}


def one_episode_row(rewards, values, next_value, dones, gamma, lam):
    n = len(rewards)
    advantages = np.zeros(n)
    lastgaelam = 0.0
    for t in reversed(range(n)):
        if t == n - 1:
            nextnonterminal = 1.0 - dones[t]
            nextvalues = next_value
        else:
            nextnonterminal = 1.0 - dones[t + 1]
            nextvalues = values[t + 1]
        delta = rewards[t] + gamma * nextvalues * nextnonterminal - values[t]
        advantages[t] = lastgaelam = delta + gamma * lam * nextnonterminal * lastgaelam
    return advantages


def row_indices(shape, mask, lengths):
    if len(shape) == 1:
        ends = np.cumsum(lengths)
        return [np.arange(e - n, e) for e, n in zip(ends, lengths)]
    flat = np.arange(shape[0] * shape[1]).reshape(shape)
    if mask is not None:
        return [flat[i][np.asarray(mask[i], bool)] for i in range(shape[0])]
    if lengths is not None:
        return [flat[i, :n] for i, n in enumerate(lengths)]
    return list(flat)


def gae(*, rewards, values, gamma, lam, bootstrap=None, terminal=None, mask=None, lengths=None):
    rewards = np.asarray(rewards)
    r, v = rewards.reshape(-1).astype(np.float64), np.asarray(values).reshape(-1).astype(np.float64)
    f = np.zeros(r.size) if terminal is None else np.asarray(terminal).reshape(-1).astype(np.float64)
    out = np.zeros(r.size)
    for i, where in enumerate(row_indices(rewards.shape, mask, lengths)):
        last = 0.0 if bootstrap is None else float(bootstrap[i])
        out[where] = one_episode_row(r[where], v[where], last, f[where], gamma, lam)
    return {"advantages": out.reshape(rewards.shape).astype(rewards.dtype)}


OPS = {"gae": gae}
