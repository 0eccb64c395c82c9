"""Comparisons with the oracle, and what each side may err by."""

from __future__ import annotations

import math

import numpy as np

from .model import Evidence

U = {"float32": 2.0**-24, "float64": 2.0**-53}
K = {"float32": 4, "float64": 8}  # docs/definitions.md, "Accuracy"
ACCURACY = "derived: k·2u·S, k = 4 for float32, 8 for float64"


def within(quantity, got, want, limit, because):
    """The largest error in units of its limit is at most 1; a shape that differs is infinitely wrong."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return Evidence(
            f"{quantity}, error over limit", math.inf, "<=", 1.0, f"shape {got.shape}, must be {want.shape}"
        )
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(same, 0.0, np.abs(got.astype(np.float64) - want) / limit)
    return Evidence(f"{quantity}, error over limit", float(np.max(share, initial=0.0)), "<=", 1.0, because)


def ours(quantity, dtype, want, scale):
    """Our bound: `ACCURACY`."""
    limit = K[dtype] * 2 * U[dtype] * scale + np.spacing(np.abs(want))
    return lambda got: [within(f"ours: {quantity}", got, want, limit, ACCURACY)]


def equal(quantity, got, want, because):
    """Two numbers are the same."""
    return Evidence(quantity, float(got), "==", float(want), because)


def at_most(quantity, got, most, because):
    """A number does not exceed another."""
    return Evidence(quantity, float(got), "<=", float(most), because)
