"""Rewards and conventions that several gates of advantages use."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.model import Array, Bound

UNSCALED: dict[str, Any] = {"scale": "none", "ddof": None, "eps": None, "eps_mode": None}  # nothing divides
PRESETS: dict[str, dict[str, Any]] = {
    "trl": {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"},
    "verl": {"scale": "group", "ddof": 1, "eps": 1e-6, "eps_mode": "add", "baseline": "mean"},
    "rlox": {"scale": "group", "ddof": 0, "eps": 1e-8, "eps_mode": "threshold", "baseline": "mean"},
    "mlxrl": {"scale": "group", "ddof": 0, "eps": 1e-8, "eps_mode": "inside", "baseline": "mean"},
    "batch": {"scale": "batch", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"},
    "dr-grpo": {**UNSCALED, "baseline": "mean"},
    "rloo": {**UNSCALED, "baseline": "leave-one-out"},
}
DTYPES = ("float32", "float64")

ROUNDING = "k·2u·S with S = max|R_g|/(std ⊕ ε): a subtraction and a division conditioned by the rewards' size"
BOUNDS = {
    "advantage error in 2u·S (float32)": Bound(
        "derived", f"{ROUNDING}; k = 4, sums of float32 data in float64", 4.0, level="precision"
    ),
    "advantage error in 2u·S (float64)": Bound(
        "derived", f"{ROUNDING}; k = 8, compensated sums and the oracle's own rounding", 8.0, level="precision"
    ),
}
SMALL = 1e-5  # rewards of this size lie below every ε but 1e-6 and 1e-8, so that it shows where ε stands


def rewards(rng: np.random.Generator, groups: int, size: int, dtype: str) -> Array:
    """Return prompt-major rewards (groups · size,) whose groups differ by no less than a tenth of their size.

    In turn: 0/1 scores, a uniform score, a score in tenths, and one of the size of SMALL.
    """
    kinds = (
        lambda: rng.integers(0, 2, size).astype(np.float64),
        lambda: rng.uniform(-1.0, 1.0, size),
        lambda: rng.integers(-5, 11, size) / 10.0,
        lambda: rng.normal(0.0, SMALL, size),
    )
    rows = []
    for index in range(groups):
        row = kinds[index % len(kinds)]()
        row[0] += 0.5 if row.max() == row.min() else 0.0
        rows.append(row)
    return np.concatenate(rows).astype(dtype)


def least_spread(rewards: Array, group_size: int) -> float:
    """Return the least deviation of a group in units of its largest |reward|; one with fewer than two scored is none."""
    groups = rewards.astype(np.float64).reshape(-1, group_size)
    scored = [row[~np.isnan(row)] for row in groups]
    return min(
        (float(x.std() / max(np.max(np.abs(x)), np.finfo(float).tiny)) for x in scored if x.size > 1), default=1.0
    )
