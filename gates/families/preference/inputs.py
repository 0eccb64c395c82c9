"""Seeded calls of the ops of preference learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.families import arrays
from gates.model import Array

PAIRS, WIDTH, PROMPT = 16, 20, 5
SCALARS = ("beta", "label_smoothing", "penalty", "margin", "nll", "desirable_weight", "undesirable_weight")
NONE: dict[str, Any] = dict.fromkeys(("label_smoothing", "lengths", "penalty", "margin", "nll"))
ALONE = ("orpo", "simpo", "cpo")  # they have no reference model
RAREST = 8.0  # nats of the least likely token
NEAR, FAR = (
    0.3,
    3.0,
)  # deviation of a token's log-ratio, in nats: of training, and of models that have nothing in common


def rows(
    rng: np.random.Generator, count: int, spread: float, dtype: str, *, padding: str = "right", shared: bool = False
) -> dict[str, Array]:
    """Return log-probs of prompts and completions of unequal lengths, the completions' mask and that of all tokens.

    Prompts and padding hold log-probs like any token's. With `shared` both rows of a pair have the same prompt.
    """
    lengths = rng.integers(2, WIDTH - PROMPT, count)
    starts = rng.integers(1, PROMPT, count)
    starts[0] = 0  # rows at both ends of the array, the only ones that show a lost first or last column
    lengths[-1] = WIDTH - starts[-1]
    lengths[1] = 1
    if shared:
        starts[1::2] = starts[0::2]
        lengths[-1] = WIDTH - starts[-1]
    begins = np.zeros(count, np.int64) if padding == "right" else WIDTH - starts - lengths
    places = np.arange(WIDTH) - begins[:, None]
    ends = (starts + lengths)[:, None]
    policy = -np.minimum(rng.gamma(1.5, 0.8, places.shape), RAREST) - 1e-3
    reference = np.minimum(policy + rng.normal(0.0, spread, places.shape), -1e-3)
    if shared:
        prompt = (places < starts[:, None])[1::2]
        policy[1::2], reference[1::2] = (np.where(prompt, x[0::2], x[1::2]) for x in (policy, reference))
    return {
        "policy": policy.astype(dtype),
        "reference": reference.astype(dtype),
        "mask": (places >= starts[:, None]) & (places < ends),
        "attention_mask": (places >= 0) & (places < ends),
    }


def pairs(
    rng: np.random.Generator,
    loss: str,
    constants: Mapping[str, Any],
    *,
    dtype: str,
    spread: float = NEAR,
    free: bool = False,
    all_tokens: bool = False,
    **layout: Any,
) -> dict[str, Any]:
    """Return a call of `preference_loss`; without a reference if `free`, with ORPO's likelihood of `all_tokens`."""
    inputs: dict[str, Any] = rows(rng, 2 * PAIRS, spread, dtype, **layout)
    if free or loss in ALONE:
        inputs["reference"] = None
    if not all_tokens:
        del inputs["attention_mask"]
    return {**inputs, "loss": loss, **NONE, **constants}


def without_tokens(rng: np.random.Generator, *asked: Any, **choices: Any) -> dict[str, Any]:
    """Return pairs of which one has an empty chosen side, and another an empty rejected one."""
    inputs = pairs(rng, *asked, **choices)
    inputs["mask"][[2, 5]] = False
    return inputs


def one_pair(rng: np.random.Generator, *asked: Any, **choices: Any) -> dict[str, Any]:
    """Return one pair, of whose chosen completion one token is all that there is."""
    inputs = pairs(rng, *asked, **choices)
    for name in ("policy", "reference", "mask"):
        inputs[name] = None if inputs[name] is None else inputs[name][:2]
    inputs["mask"][0] &= np.cumsum(inputs["mask"][0]) == 1
    return inputs


def nothing_chosen(rng: np.random.Generator, *asked: Any, **choices: Any) -> dict[str, Any]:
    """Return pairs of which no chosen side has a token."""
    inputs = pairs(rng, *asked, **choices)
    inputs["mask"][0::2] = False
    return inputs


def unreadable(inputs: dict[str, Any]) -> dict[str, Any]:
    """Put NaN and infinities where neither prompt nor completion stands."""
    after = np.logical_or.accumulate(inputs["mask"], axis=1) & ~inputs["mask"]
    for name in ("policy", "reference"):
        if inputs[name] is not None:
            garbage = np.resize(np.array([np.nan, -np.inf, np.inf], inputs[name].dtype), after.shape)
            inputs[name] = np.where(after, garbage, inputs[name])
    return inputs


def unreadable_pairs(rng: np.random.Generator, *asked: Any, **choices: Any) -> dict[str, Any]:
    """Return pairs whose padding cannot be read."""
    return unreadable(pairs(rng, *asked, **choices))


def labelled(
    rng: np.random.Generator, *, dtype: str, shift: float, padding: str = "right", garbage: bool = False
) -> dict[str, Any]:
    """Return a call of `kto_loss`, the mean of the mismatched log-ratios around `shift`."""
    inputs: dict[str, Any] = rows(rng, 2 * PAIRS, 0.5, dtype, padding=padding)
    del inputs["attention_mask"]
    return {
        **(unreadable(inputs) if garbage else inputs),
        "desirable": np.arange(2 * PAIRS) % 3 > 0,
        "mismatched": rng.normal(shift, 1.0, 12).astype(dtype),
        "beta": 0.4,
        "desirable_weight": 1.0,
        "undesirable_weight": 1.33,
    }


def before(mask: Array) -> Array:
    """Return the slots before a row's last completion token that are not in it: those of its prompt."""
    return np.flip(np.logical_or.accumulate(np.flip(mask, axis=1), axis=1), axis=1) & ~mask


def rounded(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with the scalars that a kernel rounds to the data's dtype, rounded."""
    return arrays.rounded(inputs, SCALARS)


def scores(rng: np.random.Generator, kind: str, size: int) -> dict[str, Any]:
    """Return scores of 12 groups, all different, or with ties, with some that are NaN, or with infinities."""
    if kind == "distinct":
        return {"scores": rng.permutation(12 * size) / 8.0 - 1.0}
    groups = rng.integers(0, 3, (12, size)).astype(np.float64)
    groups[0], groups[1] = 1.0, np.arange(size)
    groups[2] = np.arange(size)[::-1]
    if kind in {"not-scored", "infinities"}:
        groups += rng.permutation(12 * size).reshape(groups.shape) / 64.0  # no ties
    if kind == "not-scored":
        groups[3:9][rng.random((6, size)) < 0.4] = np.nan
        groups[3], groups[4] = np.r_[np.nan, -2.0 - np.arange(size - 1)], np.r_[-2.0 - np.arange(size - 1), np.nan]
        groups[np.isnan(groups).all(axis=1), -1] = 0.0
    if kind == "infinities":
        groups[5], groups[6, 0] = -np.inf, np.inf
        groups[5, -1] = 0.0
    return {"scores": groups.reshape(-1)}


def groups(rng: np.random.Generator, kind: str, size: int) -> dict[str, Any]:
    """Return a call of `best_of_n`."""
    return {**scores(rng, kind, size), "group_size": size}


def winners(rng: np.random.Generator, *, garbage: bool = False) -> dict[str, Any]:
    """Return a call of `winner_loss` in uneven parts."""
    made: dict[str, Any] = {**rows(rng, 12, NEAR, "float32"), "scores": rng.permutation(12) / 4.0}
    made = unreadable(made) if garbage else made
    return {name: made[name] for name in ("policy", "mask", "scores")} | {"group_size": 4, "parts": [5, 1, 6]}
