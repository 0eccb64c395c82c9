"""Soft punishment of overlong completions; whole numbers are divided by whole numbers and the slope becomes a step."""

import numpy as np

OP = "overlong_penalty"
BUG = "integer division: the ramp (L_max - L_c - n) // L_c is -1 on the whole buffer instead of falling linearly"
SAYS = ("integer|floor|round|//|truncated to|whole number|whole-number|step instead|no ramp",)
CONVENTIONS = {}


def soft_overlong(n, expected, buffer):
    exceed = n - expected
    penalty = np.minimum(-exceed // buffer, 0)
    return np.maximum(penalty, -1)


def overlong_penalty(*, lengths, limit, buffer):
    n = np.asarray(lengths, np.int64)
    expected = int(limit) - int(buffer)
    return {"penalty": soft_overlong(n, expected, int(buffer)).astype(np.float64)}


OPS = {"overlong_penalty": overlong_penalty}
