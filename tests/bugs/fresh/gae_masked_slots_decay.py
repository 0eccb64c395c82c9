"""GAE over all slots of a row: a masked one adds nothing and yet costs the trace one more step of decay."""

import numpy as np

OP = "gae"
BUG = "masked slots decay the trace by gamma lambda: they are stepped through and not skipped"
SAYS = ("mask|hole|skip|slot|gap", "decay|step|trace|skip|discount|through")
CONVENTIONS = {"gae": {"dtype": ("float32", "float64")}}


def gae(*, rewards, values, gamma, lam, bootstrap, terminal, mask, lengths):
    if rewards.ndim == 1:
        raise NotImplementedError("padded arrays only")
    rows, width = rewards.shape
    if mask is None:
        mask = np.ones((rows, width), bool) if lengths is None else np.arange(width) < lengths[:, None]
    r, v = (np.where(mask, x, 0).astype(np.float64) for x in (rewards, values))
    goes_on = np.ones((rows, width)) if terminal is None else 1.0 - (terminal & mask)
    after = np.zeros(rows) if bootstrap is None else bootstrap.astype(np.float64)
    trace = np.zeros(rows)
    advantages = np.zeros((rows, width))
    for t in reversed(range(width)):
        here = mask[:, t]
        delta = r[:, t] + gamma * goes_on[:, t] * after - v[:, t]
        decayed = gamma * lam * goes_on[:, t] * trace
        trace = np.where(here, delta + decayed, gamma * lam * trace)
        advantages[:, t] = np.where(here, trace, 0)
        after = np.where(here, v[:, t], after)
    return {"advantages": advantages.astype(rewards.dtype)}


OPS = {"gae": gae}
