"""Designed calls of the advantages: groups whose sizes and spreads tell one divisor from another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gates.diagnosis.program import Inputs
from gates.model import Array

SHAPES = ((3, 4), (5, 2), (2, 6), (4, 3), (2, 8), (6, 4), (3, 5), (4, 6))
"""Prompts and members of a group: no two are alike, so that no scale is free."""
MAGNITUDES = (1.0, 1e-6, 0.3, 1e-4, 3e-9, 2.0)  # of the groups of a batch, in turn: ε is seen beside each
OF_BATCH = (1.0, 6.0, 1.0, 1e-5, 1.0, 1e-7, 3e-9, 1.0)  # a factor of the whole batch: ε beside a batch's deviation

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
