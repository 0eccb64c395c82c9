"""Designed calls of ratios, weights and statistics, which tell the edits of a program from each other; and valid calls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.arithmetic.functions import plain
from gates.families import arrays, row_inputs
from gates.families.program import Inputs
from gates.families.ratio import edits
from gates.families.rows import Grid
from gates.families.valid import Generator
from gates.model import Array

BESIDE = 0.03  # nats between a usual bound and the nearest log-ratios
RATIO_PAIR, WEIGHTS_PAIR = ("policy", "old"), ("old", "sampling")


def designed_ratio(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call: log-ratios of both signs, rows that move up and down."""
    for mask in row_inputs.masks(example, "policy", rng):
        policy = arrays.logprobs(rng, mask.shape) - 1e-3
        moved = rng.normal(0.0, 0.4, mask.shape) + np.resize((0.15, -0.1), len(mask))[:, None]
        yield row_inputs.laid_out(example, "policy", {"policy": policy, "old": policy - moved}, mask)


def designed_weights(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call: ratios below, inside and above both bounds, and of exactly 1."""
    bounds = {*edits.BOUNDS, example["c_max"], example["c_min"] or 0.4, np.exp(example["c_max"])}
    edges = np.log([min(bounds) / 3.0, *sorted(bounds), max(bounds) * 3.0])
    beside = np.add.outer(np.log(edits.BOUNDS), (-BESIDE, BESIDE)).reshape(-1)  # so that the size of a bound is known
    goals, used = rng.permutation(np.r_[(edges[1:] + edges[:-1]) / 2.0, beside]), 0  # one between any two bounds
    for mask in row_inputs.masks(example, "old", rng):
        goals = np.roll(goals, -used)
        if example["level"] == "token":
            moved, used = rng.permuted(np.resize(goals, mask.shape), axis=1), mask.size
            moved += rng.uniform(-0.5 * BESIDE, 0.5 * BESIDE, mask.shape)
            moved[rng.random(mask.shape) < 0.15] = 0.0
        else:
            used, tokens_ = len(mask), np.maximum(mask.sum(axis=1, keepdims=True), 1)
            goal, noise = np.resize(goals, (used, 1)), rng.normal(0.0, 0.3, mask.shape)
            moved = (goal - np.where(mask, noise, 0.0).sum(axis=1, keepdims=True)) / tokens_ + noise
        old = arrays.logprobs(rng, mask.shape) - 1e-3
        yield row_inputs.laid_out(example, "old", {"old": old, "sampling": old - moved}, mask)


def places_ratio(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of tokens or rows by name."""
    yield from _places(inputs, RATIO_PAIR, (None, None))


def places_weights(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of tokens or rows by name."""
    yield from _places(inputs, WEIGHTS_PAIR, (inputs["c_min"], inputs["c_max"]))


def _places(
    inputs: Inputs, names: tuple[str, str], bounds: tuple[float | None, float | None]
) -> Iterator[tuple[str, Array]]:
    first, second = (np.asarray(inputs[name], np.float64) for name in names)
    if inputs["level"] == "token":
        yield from row_inputs.places(inputs, names[0])
        ratio, counts = np.exp(first - second), row_inputs.tokens(inputs, names[0])
    else:
        yield from row_inputs.row_places(inputs, names[0])
        grid = Grid.of(inputs, names[0])
        ratio = np.exp(np.where(grid.counts, plain(grid.wide(first - second)), 0.0).sum(axis=1))
        counts = np.ones(ratio.shape, bool)
    named = {"where the ratio is above 1": ratio > 1.0, "where the ratio is below 1": ratio < 1.0}
    for name, bound in zip(("lower", "upper"), bounds, strict=True):
        if bound is not None:
            named[f"where the ratio is above the {name} bound"] = ratio > bound
            named[f"where the ratio is below the {name} bound"] = ratio < bound
    yield from ((name, place & counts) for name, place in named.items())


def designed_statistics(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call: ratios on both sides of the clip range, advantages of both signs."""
    for mask in row_inputs.masks(example, "policy", rng):
        policy = arrays.logprobs(rng, mask.shape) - 1e-3
        moved = rng.normal(0.05, 0.35, mask.shape)
        values = {"policy": policy, "behaviour": policy - moved}
        given = row_inputs.laid_out(example, "policy", values, mask)
        if example.get("advantages") is not None:
            drawn = np.resize([1.1, -0.6, 0.4, -1.3], len(mask)) * rng.uniform(0.5, 1.5, len(mask))
            given["advantages"] = drawn.astype(np.asarray(example["policy"]).dtype)
        yield given


def valid_weights(
    rng: np.random.Generator, bounds: tuple[float | None, float], missing: float, **choices: Any
) -> dict[str, Any]:
    """Return a call of `importance_weights` with a share of log-probs that were not recorded."""
    made = row_inputs.moved(rng, WEIGHTS_PAIR, **choices)
    unrecorded = rng.random(made["sampling"].shape) < missing
    made["sampling"] = np.where(unrecorded, np.nan, made["sampling"]).astype(choices["dtype"])
    return {**made, "c_min": bounds[0], "c_max": bounds[1]}


def valid_statistics(
    rng: np.random.Generator, signs: str, widths: tuple[float, float], **choices: Any
) -> dict[str, Any]:
    """Return a call of `ratio_statistics`."""
    made = row_inputs.moved(rng, ("policy", "behaviour"), **choices)
    drawn = rng.normal(0.0, 1.0, choices["shape"][:1]).astype(choices["dtype"])
    advantages = {
        "both": drawn,
        "none": None,
        "positive": np.abs(drawn),
        "negative": -np.abs(drawn),
        "zero": 0.0 * drawn,
    }
    return {**made, "epsilon_low": widths[0], "epsilon_high": widths[1], "advantages": advantages[signs]}


GENERATORS = (
    Generator(
        "importance_ratio",
        {**row_inputs.MOVED, "level": ("token", "seq_mean", "seq_sum")},
        partial(row_inputs.moved, names=RATIO_PAIR),
    ),
    Generator(
        "importance_weights",
        {
            **row_inputs.MOVED,
            "correction": ("tis", "mis"),
            "level": ("token", "seq_sum"),
            "bounds": ((0.5, 2.0), (None, 1.5), (1.0, 3.0), (1.0, 1.0), (0.0, 1.0)),
            "missing": (0.0, 0.3, 1.0),
        },
        valid_weights,
    ),
    Generator(
        "ratio_statistics",
        {
            **row_inputs.MOVED,
            "signs": ("both", "none", "positive", "negative", "zero"),
            "widths": ((0.2, 0.28), (0.0, 0.0), (0.9, 5.0)),
        },
        valid_statistics,
    ),
)
