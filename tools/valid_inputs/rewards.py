"""Inputs of the ops of rewards: advantages of groups, of several reward functions, and generalised advantage estimates."""

from __future__ import annotations

from typing import Any

import numpy as np

from valid_inputs import Generator, Rng, rows
from valid_inputs.rows import Array

GROUPS = {
    "one of one": (1, 1),
    "one of four": (1, 4),
    "as many as members": (4, 4),
    "pairs": (5, 2),
    "of one": (4, 1),
    "of five": (3, 5),
}
VALUES = ("uniform", "binary", "ones", "offset", "tiny", "huge", "one group equal", "all equal")
SCORED = ("all", "some", "one of a group", "none of a group", "not the first", "one in all")
EPSILON = {"none": 0.0, "usual": 1e-4, "large": 0.25, "a deviation": 1.0}
DDOF = ("0", "1")


def values(rng: Rng, shape: tuple[int, int], kind: str) -> Array:
    """Return rewards (P, G)."""
    drawn = rng.uniform(-1.0, 1.0, shape)
    if kind == "binary":
        return rng.integers(0, 2, shape).astype(np.float64)
    if kind == "ones":  # a deviation of exactly 1 where a group holds as many of both
        return np.where(np.arange(shape[1]) % 2 == 0, 1.0, -1.0) * np.ones(shape)
    if kind == "one group equal":
        drawn[-1] = drawn[-1, 0]
    if kind == "all equal":
        drawn = np.repeat(drawn[:, :1], shape[1], axis=1)
    return {"offset": 100.0 + drawn, "tiny": 1e-12 * drawn, "huge": 1e12 * drawn}.get(kind, drawn)


def unscored(rng: Rng, grid: Array, kind: str) -> Array:
    """Return the rewards with NaN where nothing was scored."""
    missing = np.zeros(grid.shape, bool)
    if kind == "some":
        missing = rng.random(grid.shape) < 0.35
    if kind == "one of a group":
        missing[0, 1:] = True
    if kind == "none of a group":
        missing[-1] = True
    if kind == "not the first":
        missing[:, 0] = True
    if kind == "one in all":
        missing[:], missing[0, 0] = True, False
    return np.where(missing, np.nan, grid)


def group(rng: Rng, groups: str, kind: str, scored: str, dtype: str, **chosen: str) -> dict[str, Any]:
    """Return a call of `group_advantages`; a leave-one-out baseline needs two members."""
    size = GROUPS[groups][1]
    drawn = unscored(rng, values(rng, GROUPS[groups], kind), scored).reshape(-1).astype(dtype)
    baseline = chosen["baseline"] if size > 1 else "mean"
    given = {"rewards": drawn, "group_size": size, "scale": chosen["scale"], "baseline": baseline}
    if chosen["scale"] == "none":
        return {**given, "ddof": None, "eps": None, "eps_mode": None}
    return {**given, "ddof": int(chosen["ddof"]), "eps": EPSILON[chosen["eps"]], "eps_mode": chosen["mode"]}


def several(
    rng: Rng, groups: str, functions: str, weights: str, scored: str, dtype: str, **chosen: str
) -> dict[str, Any]:
    """Return a call of `normalise_then_sum`."""
    prompts, size = GROUPS[groups]
    columns = [
        unscored(rng, values(rng, (prompts, size), chosen["kind"] if f == 0 else "uniform"), scored if f < 2 else "all")
        for f in range(int(functions))
    ]
    factors = rng.uniform(0.5, 2.0, int(functions)) * np.where(np.arange(int(functions)) % 2, -1.0, 1.0)
    factors = {"mixed": factors, "ones": np.ones(len(factors)), "zero": 0.0 * factors}[weights]
    return {
        "rewards": np.stack([column.reshape(-1) for column in columns], axis=1).astype(dtype),
        "weights": factors.astype(dtype),
        "group_size": size,
        "group_ddof": int(chosen["group_ddof"]),
        "group_eps": EPSILON[chosen["group_eps"]],
        "batch_ddof": int(chosen["batch_ddof"]),
        "batch_eps": EPSILON[chosen["batch_eps"]],
    }


def gae(rng: Rng, gamma: str, lam: str, bootstrap: str, terminal: str, **levels: str) -> dict[str, Any]:
    """Return a call of `gae`."""
    held = rows.draw(rng, levels["shape"], levels["layout"], levels["empty"])
    dtype, shape = levels["dtype"], held.valid.shape
    ends = {"none": np.zeros(shape, bool), "some": rng.random(shape) < 0.25, "all": np.ones(shape, bool)}
    ends["last"] = np.arange(shape[1]) == shape[1] - 1
    flags = np.broadcast_to(ends.get(terminal, ends["none"]), shape)
    return {
        "rewards": held.place(rng.normal(0.0, 1.0, shape), dtype),
        "values": held.place(rng.normal(0.0, 2.0, shape), dtype),
        "gamma": float(gamma),
        "lam": float(lam),
        "bootstrap": rng.normal(0.0, 2.0, shape[:1]).astype(dtype) if bootstrap == "given" else None,
        "terminal": None if terminal == "not given" else held.place(flags, "bool"),
        **held.given,
    }


GENERATORS = (
    Generator(
        "group_advantages",
        {
            "groups": tuple(GROUPS),
            "kind": VALUES,
            "scored": SCORED,
            "dtype": rows.DTYPES,
            "scale": ("group", "batch", "none"),
            "baseline": ("mean", "leave-one-out"),
            "ddof": DDOF,
            "eps": tuple(EPSILON),
            "mode": ("add", "inside", "threshold"),
        },
        group,
    ),
    Generator(
        "normalise_then_sum",
        {
            "groups": tuple(GROUPS),
            "functions": ("1", "2", "3"),
            "weights": ("mixed", "ones", "zero"),
            "kind": VALUES,
            "scored": SCORED,
            "dtype": rows.DTYPES,
            "group ddof": DDOF,
            "group eps": tuple(EPSILON),
            "batch ddof": DDOF,
            "batch eps": tuple(EPSILON),
        },
        several,
    ),
    Generator(
        "gae",
        {
            **rows.FACTORS,
            "gamma": ("0.0", "0.5", "1.0"),
            "lam": ("0.0", "0.95", "1.0"),
            "bootstrap": ("given", "none"),
            "terminal": ("not given", "none", "some", "all", "last"),
        },
        gae,
    ),
)
