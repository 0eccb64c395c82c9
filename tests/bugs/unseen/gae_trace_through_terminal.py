"""GAE whose terminal flag cuts the next value but not the trace of later advantages."""

import numpy as np

OP = "gae"
BUG = "a terminal flag cuts the value that follows but not the trace: later advantages leak into the episode before"
SAYS = ("terminal|flag|done|episode", "trace|advantage|leak|lambda|λ|cut|A⁺|carr")
CONVENTIONS = {"gae": {"dtype": ("float32", "float64")}}


def scan(rewards, values, flags, last, gamma, lam):
    advantages = np.zeros(len(rewards))
    carried, following = 0.0, last
    for t in range(len(rewards) - 1, -1, -1):
        alive = 0.0 if flags[t] else 1.0
        delta = rewards[t] + gamma * alive * following - values[t]
        carried = delta + gamma * lam * carried
        advantages[t] = carried
        following = values[t]
    return advantages


def gae(*, rewards, values, gamma, lam, bootstrap, terminal, mask, lengths):
    flags = np.zeros(rewards.shape, bool) if terminal is None else terminal
    out = np.zeros(rewards.shape)
    if rewards.ndim == 1:
        ends = np.cumsum(lengths)
        places = [np.arange(end - n, end) for end, n in zip(ends, lengths, strict=True)]
    elif mask is not None:
        places = [i * rewards.shape[1] + np.flatnonzero(row) for i, row in enumerate(mask)]
    else:
        counts = [rewards.shape[1]] * len(rewards) if lengths is None else lengths
        places = [i * rewards.shape[1] + np.arange(n) for i, n in enumerate(counts)]
    flat = out.reshape(-1)
    for i, at in enumerate(places):
        last = 0.0 if bootstrap is None else float(bootstrap[i])
        row_rewards = rewards.reshape(-1)[at].astype(np.float64)
        row_values = values.reshape(-1)[at].astype(np.float64)
        flat[at] = scan(row_rewards, row_values, flags.reshape(-1)[at], last, gamma, lam)
    return {"advantages": flat.reshape(rewards.shape).astype(rewards.dtype)}


OPS = {"gae": gae}
