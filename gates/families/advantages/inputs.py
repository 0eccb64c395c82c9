"""Designed calls of the advantages, whose sizes and spreads tell one divisor from another; and valid calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families import row_inputs
from gates.families.program import Inputs
from gates.families.valid import DTYPES, Generator
from gates.model import Array

SHAPES = ((3, 4), (5, 2), (2, 6), (4, 3), (2, 8), (6, 4), (3, 5), (4, 6))
"""Prompts and members of a group: no two are alike, so that no scale is free."""
MAGNITUDES = (1.0, 1e-6, 0.3, 1e-4, 3e-9, 2.0)  # of the groups of a batch, in turn: ε is seen beside each
OF_BATCH = (1.0, 6.0, 1.0, 3e-5, 1.0, 1e-7, 3e-9, 1.0)  # a factor of the whole batch: ε beside a batch's deviation

COLUMNS = (1.0, 30.0, 0.02)  # the sizes of the reward functions, in turn
OF_WEIGHTS = (1.0, 1e-3, 1.0, 1e-5, 1e-2, 1.0, 1e-4, 1e-7)  # a factor of all: ε beside the deviation of the sums
NEAR_EPS = np.array((2.0, 0.8, 4.0, 0.2))


def rewards(rng: np.random.Generator, groups: int, size: int, *, alike: bool) -> Array:
    """Return (groups, size) rewards without offset, skewed, of both signs; `alike`: of one magnitude."""
    spread = np.linspace(-1.0, 1.0, size) + rng.uniform(-0.3, 0.3, (groups, size)) / size
    table = rng.permuted(np.sign(spread) * np.abs(spread) ** 1.7, axis=1) + rng.uniform(0.2, 0.7, (groups, 1))
    table *= np.where(rng.random((groups, 1)) < 0.5, -1.0, 1.0)
    return table if alike else table * np.resize(MAGNITUDES, groups)[:, None]


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call, and with unscored rewards where it has some."""
    given = np.asarray(example["rewards"])
    for index, ((groups, size), factor) in enumerate(zip(SHAPES, OF_BATCH, strict=True)):
        table = rewards(rng, groups, size, alike=factor != 1.0 or index == 2) * factor
        if index == len(SHAPES) - 1 and example["eps"]:  # deviations on both sides of ε, near it
            table = rewards(rng, groups, size, alike=True) * np.resize(example["eps"] * NEAR_EPS, groups)[:, None]
        if np.isnan(given).any() and size > 3:
            table[0, 1], table[-1, 0] = np.nan, np.nan
        yield {**example, "rewards": table.reshape(-1).astype(given.dtype), "group_size": size}


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of rewards by name."""
    groups = np.asarray(inputs["rewards"], np.float64).reshape(-1, int(inputs["group_size"]))
    off = groups - np.nanmean(groups, axis=1, keepdims=True)
    spread = np.nanstd(groups, axis=1, keepdims=True) * np.ones(groups.shape)
    columns = np.arange(groups.shape[1]) * np.ones(groups.shape)
    named = {
        "where R is above the mean of its group": off > 0.0,
        "where R is below the mean of its group": off < 0.0,
        "where R < 0": groups < 0.0,
        "where R > 0": groups > 0.0,
        "in groups whose deviation is below 1e-6": spread < 1e-6,
        "in groups whose deviation is below 1e-3": spread < 1e-3,
        "in groups whose deviation is above 1e-3": spread > 1e-3,
        "at the first row of each group": columns == 0,
        "at the last row of each group": columns == groups.shape[1] - 1,
        "after the first row of each group": columns > 0,
        "at the largest reward of each group": groups == np.nanmax(groups, axis=1, keepdims=True),
        "at the smallest reward of each group": groups == np.nanmin(groups, axis=1, keepdims=True),
        "after the first group": np.arange(len(groups))[:, None] * np.ones(groups.shape) > 0,
        "in the first group": np.arange(len(groups))[:, None] * np.ones(groups.shape) == 0,
    }
    yield from ((name, place.reshape(-1)) for name, place in named.items())


def designed_of_several(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call: functions of several sizes, weights down to 1e-7."""
    dtype, count = np.asarray(example["rewards"]).dtype, np.shape(example["rewards"])[1]
    weights = np.resize((1.0, 0.5, -2.0), count)
    for (groups, size), factor in zip(SHAPES, OF_WEIGHTS, strict=True):
        columns = [(rewards(rng, groups, size, alike=True) * scale).reshape(-1) for scale in np.resize(COLUMNS, count)]
        columns[-1].reshape(groups, size)[0] *= 1e-3  # ε beside a small deviation of a group
        yield {
            **example,
            "rewards": np.stack(columns, axis=1).astype(dtype),
            "weights": (weights * factor).astype(dtype),
            "group_size": size,
        }


def places_of_several(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of rows by name."""
    size, rows = int(inputs["group_size"]), np.arange(len(inputs["rewards"]))
    yield "in the first group", rows < size
    yield "after the first group", rows >= size
    yield "at the first row of each group", rows % size == 0
    yield "after the first row of each group", rows % size > 0


def designed_of_gae(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call."""
    for mask in row_inputs.masks(example, "rewards", rng):
        arrays = {"rewards": rng.normal(0.2, 1.0, mask.shape), "values": rng.normal(0.3, 2.0, mask.shape)}
        given = row_inputs.laid_out(example, "rewards", {name: np.asarray(x) for name, x in arrays.items()}, mask)
        if example.get("bootstrap") is not None:
            given["bootstrap"] = rng.normal(0.5, 2.0, len(mask)).astype(np.asarray(example["bootstrap"]).dtype)
        if example.get("terminal") is not None:
            ends = (rng.random(mask.shape) < 0.2) & mask
            given["terminal"] = ends[mask] if np.ndim(example["rewards"]) == 1 else ends
        yield given


def places_of_gae(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of tokens by name."""
    yield from row_inputs.places(inputs, "rewards")
    if inputs.get("terminal") is not None:
        yield "where an episode ends", np.asarray(inputs["terminal"], bool)


# --- valid calls

GROUPS: dict[str, tuple[Any, ...]] = {
    "groups": ((4, 4), (1, 1), (1, 4), (5, 2), (4, 1), (3, 5)),
    "kind": ("uniform", "binary", "ones", "offset", "tiny", "huge", "one group equal", "all equal"),
    "scored": ("all", "some", "one of a group", "none of a group", "not the first", "one in all"),
    "dtype": DTYPES,
}
EPSILON = (1e-4, 0.0, 0.25, 1.0)  # the last one is a deviation of rewards of ±1
DDOF = (1, 0)


def valid_rewards(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> Array:
    """Return rewards (P, G)."""
    drawn = rng.uniform(-1.0, 1.0, shape)
    if kind == "binary":
        return rng.integers(0, 2, shape).astype(np.float64)
    if kind == "ones":  # a deviation of exactly 1 where a group holds as many of both
        return np.where(np.arange(shape[1]) % 2 == 0, 1.0, -1.0) * np.ones(shape)
    if kind in {"one group equal", "all equal"}:
        equal = slice(-1, None) if kind == "one group equal" else slice(None)
        drawn[equal] = drawn[equal, :1]
    return {"offset": 100.0 + drawn, "tiny": 1e-12 * drawn, "huge": 1e12 * drawn}.get(kind, drawn)


def unscored(rng: np.random.Generator, rewards: Array, kind: str) -> Array:
    """Return the rewards with NaN where nothing was scored."""
    rows, columns = (np.arange(n) for n in rewards.shape)
    missing: dict[str, Any] = {
        "some": rng.random(rewards.shape) < 0.35,
        "one of a group": (rows[:, None] == 0) & (columns > 0),
        "none of a group": rows[:, None] == rows[-1],
        "not the first": columns == 0,
        "one in all": (rows[:, None] > 0) | (columns > 0),
    }
    return np.where(missing.get(kind, False), np.nan, rewards)


def valid(
    rng: np.random.Generator, groups: tuple[int, int], kind: str, scored: str, dtype: str, **choices: Any
) -> dict[str, Any]:
    """Return a call of `group_advantages`; a leave-one-out baseline needs two members."""
    drawn = unscored(rng, valid_rewards(rng, groups, kind), scored).reshape(-1).astype(dtype)
    if groups[1] == 1:
        choices["baseline"] = "mean"
    if choices["scale"] == "none":
        choices |= dict.fromkeys(("ddof", "eps", "eps_mode"))
    return {"rewards": drawn, "group_size": groups[1], **choices}


def valid_of_several(
    rng: np.random.Generator,
    groups: tuple[int, int],
    kind: str,
    scored: str,
    dtype: str,
    functions: int,
    weights: str,
    **choices: Any,
) -> dict[str, Any]:
    """Return a call of `normalise_then_sum`; the third function scores all."""
    drawn = [valid_rewards(rng, groups, kind if index == 0 else "uniform") for index in range(functions)]
    columns = [unscored(rng, x, scored if index < 2 else "all").reshape(-1) for index, x in enumerate(drawn)]
    mixed = rng.uniform(0.5, 2.0, functions) * np.resize((1.0, -1.0), functions)
    factors = {"ones": np.ones(functions), "zero": np.zeros(functions)}.get(weights, mixed)
    rewards = np.stack(columns, axis=1).astype(dtype)
    return {"rewards": rewards, "weights": factors.astype(dtype), "group_size": groups[1], **choices}


def valid_of_gae(
    rng: np.random.Generator,
    *,
    shape: tuple[int, int],
    layout: str,
    empty: str,
    dtype: str,
    bootstrap: bool,
    terminal: str | None,
    **choices: Any,
) -> dict[str, Any]:
    """Return a call of `gae`."""
    mask, last = row_inputs.valid(rng, shape, layout, empty), np.arange(shape[1]) == shape[1] - 1
    ends = {"some": rng.random(shape) < 0.25, "none": False, "all": True, "last": last}
    made = {
        "rewards": rng.normal(0.0, 1.0, shape).astype(dtype),
        "values": rng.normal(0.0, 2.0, shape).astype(dtype),
        "bootstrap": rng.normal(0.0, 2.0, shape[:1]).astype(dtype) if bootstrap else None,
        "terminal": None if terminal is None else np.broadcast_to(ends[terminal], shape).copy(),
    }
    return {**row_inputs.given(made, mask, layout), **choices}


GENERATORS = (
    Generator(
        "group_advantages",
        {
            **GROUPS,
            "scale": ("group", "batch", "none"),
            "baseline": ("mean", "leave-one-out"),
            "ddof": DDOF,
            "eps": EPSILON,
            "eps_mode": ("add", "inside", "threshold"),
        },
        valid,
    ),
    Generator(
        "normalise_then_sum",
        {
            **GROUPS,
            "functions": (2, 1, 3),
            "weights": ("mixed", "ones", "zero"),
            "group_ddof": DDOF,
            "group_eps": EPSILON,
            "batch_ddof": DDOF,
            "batch_eps": EPSILON,
        },
        valid_of_several,
    ),
    Generator(
        "gae",
        {
            **row_inputs.ROWS,
            "gamma": (0.5, 0.0, 1.0),
            "lam": (0.95, 0.0, 1.0),
            "bootstrap": (True, False),
            "terminal": ("some", None, "none", "all", "last"),
        },
        valid_of_gae,
    ),
)
