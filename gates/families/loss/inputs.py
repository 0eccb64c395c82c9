"""Designed calls of the policy losses, on which one mistake does not look like another; and valid calls.

In valid calls no number lies exactly at a clip or a clamp, where either branch is right (docs/definitions.md, "Branch points").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families import arrays, row_inputs
from gates.families.loss.calls import WHOLE
from gates.families.program import Inputs
from gates.families.rows import Grid
from gates.families.valid import Generator
from gates.model import Array
from gates_reference.algorithms import ALGORITHMS, Algorithm

SHAPES = ((4, 7, 2), (6, 5, 3), (2, 11, 2), (8, 6, 4), (4, 9, 4), (6, 8, 2), (3, 10, 3), (4, 12, 2))
"""Rows, slots and rows of a prompt: no two are alike, so that no scale is free."""
BEYOND = 3  # by how much L_max and arrays are wider than the longest row
ABOVE = 2.7  # nats: a ratio of 15
BELOW = 2.5  # a ratio of 0.08: below any ε, so that a bound of ε is not taken for none


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
    policy = arrays.logprobs(rng, (rows, width))
    sway = 0.12 if ALGORITHMS[example["algorithm"]].mean_ratio else 0.05
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
    if example.get("delta") is not None:  # a ratio above any second bound where A < 0, and one where A > 0
        by_row = advantages if advantages.ndim == 1 else advantages[:, 0]
        log_ratio[[np.argmin(by_row), np.argmax(by_row)], 0] = ABOVE
    given: dict[str, Any] = {
        **example,
        "policy": policy,
        "old": policy - log_ratio,
        "reference": policy + rng.normal(0.0, 0.4, policy.shape),
        "advantages": advantages,
    }
    if example.get("weights") is not None:
        by_token = np.shape(example["weights"]) == np.shape(example["policy"]) and np.ndim(example["policy"]) == 2
        given["weights"] = rng.uniform(0.2, 2.0, mask.shape if by_token else (rows,))
    for name in ("policy", "old", "reference", "advantages", "weights"):
        given[name] = None if example.get(name) is None else np.asarray(given[name]).astype(dtype)
    if example.get("row_mask") is not None:
        given["row_mask"] = np.arange(rows) % 3 != 1
    sized = _sized(example, given, rows, width, group, int(mask.sum()))
    return row_inputs.passed(sized, mask, row_inputs.layout_of(example, "policy"))


def _sized(example: Inputs, given: dict[str, Any], rows: int, width: int, group: int, tokens: int) -> dict[str, Any]:
    """Return the call with the settings that depend on the batch's shape."""
    if example.get("micro_batches") is not None:
        equal = len(set(example["micro_batches"])) == 1
        given["micro_batches"] = micro_batches(rows, width, equal=equal)
    if example.get("group_size") is not None:
        given["group_size"] = group
    if example.get("max_length") is not None:
        given["max_length"] = width + BEYOND
    if example.get("tokens_in_step") is not None:
        given["tokens_in_step"] = float(tokens + 4)
    return given


def micro_batches(rows: int, width: int, *, equal: bool) -> list[int]:
    """Return the rows of two or more micro-batches; their number is not that of anything else in all calls."""
    count = next(n for n in ((3, 2) if width % 2 else (2, 3)) if rows % n == 0 or not equal)
    return [rows // count] * count if equal else [1] * (min(count, rows) - 1) + [rows - min(count, rows) + 1]


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
    grid = Grid.of(inputs, "policy")
    counts = grid.counts
    policy, old, a = (_wide(grid, inputs, name) for name in ("policy", "old", "advantages"))
    named = {"in slots without a token": ~counts}
    if a is not None:
        named |= {"where A < 0": counts & (a < 0.0), "where A > 0": counts & (a > 0.0)}
    named |= row_inputs.slots(counts)
    if policy is not None and old is not None:
        r = np.exp(policy - old)
        high, low = inputs.get("epsilon_high"), inputs.get("epsilon_low")
        if high is not None:
            named["where the ratio is above the clip"] = counts & (r > 1.0 + high)
        if low is not None:
            named["where the ratio is below the clip"] = counts & (r < 1.0 - low)
        named |= {"where the ratio is above 1": counts & (r > 1.0), "where the ratio is below 1": counts & (r < 1.0)}
    yield from row_inputs.in_layout(grid, named)


def _wide(grid: Grid, inputs: Inputs, name: str) -> Array | None:
    values = inputs.get(name)
    return (
        None if values is None else np.asarray(grid.wide(np.asarray(values, np.float64), by_row=name == "advantages"))
    )


# --- valid calls

CONSTANTS = {  # ε below and above, the longest completion, temperatures above and below
    "usual": (0.2, 0.28, 16, 1.0, 1.05),
    "equal": (0.1, 0.1, 1, 1.0, 1.0),
    "wide": (0.5, 0.75, 100, 0.25, 4.0),
    "tight": (0.01, 0.02, 3, 30.0, 60.0),
}
FACTORS: dict[str, tuple[Any, ...]] = {
    "algorithm": tuple(ALGORITHMS),
    **row_inputs.MOVED,
    "advantages": ("both", "positive", "negative", "zero", "one", "token"),
    "weights": ("none", "row", "token", "zero", "large"),
    "off_policy": (True, False),
    "row_mask": (None, "first", "all but first", "odd"),
    "kl_estimator": ("k3", None, "k1", "k2"),
    "kl_ratio": ("none", "token", "sequence"),
    "kl_clamp": (None, 10.0, 0.45, 1e-3),
    "constants": tuple(CONSTANTS),
    "delta": (None, 0.05, 1.0),  # above the clip
    "dapo_denominator": ("global", "group", "trl"),
    "parts": ("one", "each", "uneven"),
    "cispo_bound": ("relative", "absolute"),
}


def valid(rng: np.random.Generator, algorithm: str, **choices: Any) -> dict[str, Any]:
    """Return a call of `policy_loss`."""
    row, (rows, layout) = ALGORITHMS[algorithm], (choices["shape"][0], choices["layout"])
    how = {name: choices[name] for name in ("step", "dtype", "nan_padding")}
    mask = row_inputs.valid(rng, *(choices[name] for name in ("shape", "layout", "empty")))
    made: dict[str, Any] = row_inputs.logprobs(rng, mask, ("policy", "old"), **how)
    step = row_inputs.step_from(rng, made["policy"].astype(np.float64), "some the same")
    if choices["kl_clamp"] == 0.45:
        step = np.where(rng.random(mask.shape) < 0.4, made["policy"] - 0.5, step)
    of_kl = _kl(row, choices)
    made["reference"] = step.astype(choices["dtype"]) if of_kl["beta"] else None
    made["old"] = made["old"] if choices["off_policy"] else None
    made["advantages"] = _advantages(rng, mask, choices["advantages"], by_row=row.by_row).astype(choices["dtype"])
    made["weights"] = _weights(rng, mask, choices["weights"], choices["dtype"], by_row=row.by_row)
    made = row_inputs.given(made, mask, layout)
    train = {"first": np.arange(rows) > 0, "all but first": np.arange(rows) == 0, "odd": np.arange(rows) % 2 == 0}
    if choices["row_mask"] and layout != "flat":
        made["row_mask"] = train[choices["row_mask"]]
    return {**made, "algorithm": algorithm, **_constants(rng, row, rows, choices), **of_kl}


def _advantages(rng: np.random.Generator, mask: Array, kind: str, *, by_row: bool) -> Array:
    drawn = np.asarray(rng.normal(0.0, 1.0, mask.shape if kind == "token" and not by_row else len(mask)))
    drawn[rng.random(drawn.shape) < 0.15] = 0.0
    changed = {"positive": np.abs(drawn), "negative": -np.abs(drawn), "zero": 0.0 * drawn, "one": np.sign(drawn)}
    return np.asarray(changed.get(kind, drawn))


def _weights(rng: np.random.Generator, mask: Array, kind: str, dtype: str, *, by_row: bool) -> Array | None:
    drawn = np.asarray(rng.uniform(0.2, 2.0, mask.shape if kind == "token" and not by_row else len(mask)))
    drawn[rng.random(drawn.shape) < 0.25] = 0.0
    return None if kind == "none" else (drawn * {"zero": 0.0, "large": 100.0}.get(kind, 1.0)).astype(dtype)


def _constants(rng: np.random.Generator, row: Algorithm, rows: int, choices: Inputs) -> dict[str, Any]:
    """Return the constants of an algorithm, None for those that it does not have."""
    low, high, longest, up, down = CONSTANTS[choices["constants"]]
    optional = (
        row.bound == "none" and row.ratio_level != "none" and choices["cispo_bound"] == "absolute"
    )  # TRL's clip of RLOO
    clipped = row.bound in {"clip", "log-clip"} or optional
    uneven = [1, rows - 1] if rows > 1 else [1]
    own: dict[str, Any] = {
        "max_length": longest,
        "micro_batches": {"one": [rows], "each": [1] * rows, "uneven": uneven}[choices["parts"]],
        "dapo_denominator": choices["dapo_denominator"],
        "cispo_bound": choices["cispo_bound"],
        "sapo_temperature_positive": up,
        "sapo_temperature_negative": down,
    }
    made = {**WHOLE, **row.constants, **{name: value for name, value in own.items() if name in row.constants}}
    made |= {"epsilon_low": low if clipped else None, "epsilon_high": high if clipped or row.bound == "cap" else None}
    two_sided = clipped and row.bound != "log-clip" and choices["delta"] is not None
    made["delta"] = 1.0 + high + choices["delta"] if two_sided else None
    if made["dapo_denominator"] == "group":
        made["group_size"] = _group_size(rng, rows)
    if made["dapo_denominator"] == "trl":
        made["tokens_in_step"] = float(rng.choice([0.5, 17.0, 171.5]))
    return made


def _group_size(rng: np.random.Generator, rows: int) -> int:
    return int(rng.choice([size for size in (1, 2, 3, rows) if rows % size == 0]))


def _kl(row: Algorithm, choices: Inputs) -> dict[str, Any]:
    if choices["kl_estimator"] is None or not row.kl_in_loss:
        return {"beta": 0.0, "kl_estimator": None, "kl_ratio": None}
    clamp = {} if choices["kl_clamp"] is None else {"kl_clamp": choices["kl_clamp"]}
    return {"beta": 0.25, "kl_estimator": choices["kl_estimator"], "kl_ratio": choices["kl_ratio"], **clamp}


def valid_completions(
    rng: np.random.Generator,
    *,
    ended: str,
    mask_truncated: bool,
    **choices: Any,
) -> dict[str, Any]:
    """Return a call of `loss_of_completions`: ended ones, truncated ones, and parts of whole rows."""
    usual = {name: options[0] for name, options in FACTORS.items()} | {"kl_estimator": None}
    made = valid(rng, **{**usual, **choices})
    rows, width = choices["shape"]
    ends = {"all": np.ones(rows, bool), "none": np.zeros(rows, bool), "some": rng.random(rows) < 0.6}[ended]
    kept = ("policy", "old", "reference", "algorithm", "epsilon_low", "epsilon_high", "beta", "dapo_denominator")
    return {
        **{name: made[name] for name in kept},
        "advantages": rng.normal(0.0, 1.0, rows).astype(choices["dtype"]),
        "lengths": rng.integers(1, width + 1, rows),
        "ended": ends | (np.arange(rows) == 0),  # a step without any token has no denominator
        "mask_truncated": mask_truncated,
        "group_size": _group_size(rng, rows),
        "max_length": width,
        "micro_batch_rows": int(rng.choice([1, 2, 5, rows])),
    }


COMPLETIONS = ("algorithm", "shape", "dtype", "step", "constants", "dapo_denominator")
GENERATORS = (
    Generator("policy_loss", FACTORS, valid),
    Generator(
        "loss_of_completions",
        {
            **{name: FACTORS[name] for name in COMPLETIONS},
            "ended": ("some", "all", "none"),
            "mask_truncated": (True, False),
        },
        valid_completions,
    ),
)
