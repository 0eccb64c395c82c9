"""Designed calls of the policy losses: batches on which one mistake does not look like another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families.program import Inputs
from gates.model import Array

SHAPES = ((4, 7, 2), (6, 5, 3), (2, 11, 2), (8, 6, 4), (4, 9, 4), (6, 8, 2), (3, 10, 3), (4, 12, 2))
"""Rows, slots and rows of a prompt: no two are alike, so that no scale is free."""
BEYOND = 3  # by how much L_max and arrays are wider than the longest row
BELOW = 2.5  # a ratio of 0.08: below any ε, so that a bound of ε is not taken for none
NARROW = frozenset(("gspo", "gspo-token", "luspo"))  # whose ratio is a mean: few rows leave ±0.2


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call and its layout.

    Lengths differ, arrays are wider than their longest row, ratios lie on both sides of the clip and inside, advantages
    have both signs, and one batch has a row without tokens where the example may have some.
    """
    for index, (rows, width, group) in enumerate(SHAPES):
        yield batch(example, rng, rows, width, group, empty=index in {2, 5} and _has_empty(example))


def examples(inputs: Inputs) -> Iterator[Inputs]:
    """Yield a call with the constants of every aggregation, then the call as it is."""
    constants = {"group_size": 1, "max_length": 1, "micro_batches": [1, 2], "tokens_in_step": 1.0}
    given = {name: value for name, value in constants.items() if inputs.get(name) is None}
    yield {**inputs, **given}
    yield inputs


def batch(
    example: Inputs, rng: np.random.Generator, rows: int, width: int, group: int, *, empty: bool
) -> dict[str, Any]:
    """Return one call."""
    dtype = np.asarray(example["policy"]).dtype
    policy = -rng.gamma(1.5, 0.8, (rows, width))
    sway = 0.12 if example["algorithm"] in NARROW else 0.05
    log_ratio = rng.normal(0.0, 0.3, (rows, width)) + sway * np.where(rng.random((rows, 1)) < 0.5, -1.0, 1.0)
    log_ratio += 0.6 * np.array([1.0, -1.0] + [0.0] * (rows - 2))[:, None]  # two rows are certainly clipped
    log_ratio[1, 1] = -BELOW
    lengths = rng.permutation(np.linspace(2, width - 1, rows).round().astype(np.int64))
    if empty:
        lengths[1] = 0
    mask = np.arange(width) < lengths[:, None]
    if _has_holes(example):
        mask &= (rng.random(mask.shape) < 0.75) | (np.arange(width) == 0)
    signs = np.where(np.arange(rows) % 2 == 0, 1.0, -1.0)
    advantages = rng.permutation(signs * rng.uniform(0.3, 1.7, rows)) + 0.1
    if np.ndim(example["advantages"]) == np.ndim(example["policy"]) and _by_token(example):
        advantages = advantages[:, None] + rng.normal(0.0, 0.9, mask.shape)
    given: dict[str, Any] = {
        **example,
        "policy": policy,
        "old": policy - log_ratio,
        "reference": policy + rng.normal(0.0, 0.4, policy.shape),
        "advantages": advantages,
        "mask": mask,
    }
    if example.get("weights") is not None:
        by_token = np.shape(example["weights"]) == np.shape(example["policy"]) and np.ndim(example["policy"]) == 2
        given["weights"] = rng.uniform(0.2, 2.0, mask.shape if by_token else (rows,))
    for name in ("policy", "old", "reference", "advantages", "weights"):
        given[name] = None if example.get(name) is None else np.asarray(given[name]).astype(dtype)
    if example.get("row_mask") is not None:
        given["row_mask"] = np.arange(rows) % 3 != 1
    return _laid_out(example, _sized(example, given, rows, width, group, int(mask.sum())))


def _sized(example: Inputs, given: dict[str, Any], rows: int, width: int, group: int, tokens: int) -> dict[str, Any]:
    """Return the call with the settings that depend on the batch's shape."""
    if example.get("micro_batches") is not None:
        equal = len(set(example["micro_batches"])) == 1 and rows % 2 == 0
        given["micro_batches"] = [rows // 2] * 2 if equal else [1, rows - 1]
    if example.get("group_size") is not None:
        given["group_size"] = group
    if example.get("max_length") is not None:
        given["max_length"] = width + BEYOND
    if example.get("tokens_in_step") is not None:
        given["tokens_in_step"] = float(tokens + 4)
    return given


def _laid_out(example: Inputs, given: dict[str, Any]) -> dict[str, Any]:
    """Return the call with a mask, with lengths, flat, or without padding, as the example is."""
    mask = given["mask"]
    if example.get("mask") is not None:
        return given
    if example.get("lengths") is None:
        return {**given, "mask": None}
    flat = np.ndim(example["policy"]) == 1
    arrays = {
        name: x for name, x in given.items() if isinstance(x, np.ndarray) and x.shape == mask.shape and name != "mask"
    }
    found = {**given, "mask": None, "lengths": mask.sum(axis=1)}
    return {**found, **{name: x[mask] for name, x in arrays.items()}} if flat else found


def _by_token(example: Inputs) -> bool:
    return np.shape(example["advantages"]) == np.shape(example["policy"])


def _has_holes(example: Inputs) -> bool:
    mask = example.get("mask")
    return mask is not None and bool((np.diff(np.asarray(mask, np.int8), axis=1) > 0).any())


def _has_empty(example: Inputs) -> bool:
    if example.get("mask") is not None:
        return not np.asarray(example["mask"]).any(axis=1).all()
    return example.get("lengths") is not None and not np.asarray(example["lengths"]).all()


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of slots by name, each of the shape of the policy's log-probs as (B, T)."""
    if output != "gradient":
        return
    from gates.families.rows import Grid  # noqa: PLC0415  rows imports nothing of this module

    grid = Grid.of(inputs, "policy")
    counts = grid.counts
    spread = {name: _wide(grid, inputs.get(name)) for name in ("policy", "old", "advantages")}
    columns = np.arange(counts.shape[1])
    a = spread["advantages"]
    named: list[tuple[str, Array]] = [("in slots without a token", ~counts)]
    if a is not None:
        named += [("where A < 0", counts & (a < 0.0)), ("where A > 0", counts & (a > 0.0))]
    first = columns == counts.argmax(axis=1)[:, None]
    last = columns == (counts.shape[1] - 1 - counts[:, ::-1].argmax(axis=1))[:, None]
    named += [("at the first token of a row", counts & first), ("after the first token of a row", counts & ~first)]
    named += [("at the last token of a row", counts & last), ("before the last token of a row", counts & ~last)]
    named += [("in rows of fewer than three tokens", counts & (counts.sum(axis=1) < 3)[:, None])]
    if spread["policy"] is not None and spread["old"] is not None:
        r = np.exp(spread["policy"] - spread["old"])
        high, low = inputs.get("epsilon_high"), inputs.get("epsilon_low")
        if high is not None:
            named += [("where the ratio is above the clip", counts & (r > 1.0 + high))]
        if low is not None:
            named += [("where the ratio is below the clip", counts & (r < 1.0 - low))]
        named += [
            ("where the ratio is above 1", counts & (r > 1.0)),
            ("where the ratio is below 1", counts & (r < 1.0)),
        ]
    for name, found in named:
        yield name, found[counts] if grid.place is not None else found


def _wide(grid: Any, values: Any) -> Array | None:
    return None if values is None else np.asarray(grid.wide(np.asarray(values, np.float64)))
