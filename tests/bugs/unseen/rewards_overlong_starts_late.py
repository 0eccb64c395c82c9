"""Over-long penalty whose buffer lies behind the limit: nothing is taken before the limit itself."""

import numpy as np

OP = "overlong_penalty"
BUG = "the penalty starts at the limit instead of one buffer before it"
SAYS = ("start|begin|late|buffer|shift|after|behind|beyond|ramp|L_c",)


def overlong_penalty(*, lengths, limit, buffer):
    excess = np.asarray(lengths, np.float64) - limit
    return {"penalty": -np.clip(excess / buffer, 0, 1)}


OPS = {"overlong_penalty": overlong_penalty}
CONVENTIONS = {"overlong_penalty": {}}
