"""Seeded calls of the ops of preference learning, and valid ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.program import Inputs
from gates.families.valid import DTYPES, Generator
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
    rng: np.random.Generator,
    *,
    dtype: str,
    shift: float,
    padding: str = "right",
    garbage: bool = False,
    undesirable_weight: float = 1.33,
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
        "undesirable_weight": undesirable_weight,
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


def prompts(inputs: Inputs) -> Array:
    """Return the slots before a completion: those of its prompt, with left padding where no mask of attention is given."""
    mask = np.asarray(inputs["mask"], bool)
    attended = inputs.get("attention_mask")
    return before(mask) if attended is None else np.asarray(np.asarray(attended, bool) & ~mask)


# --- valid calls

EMPTY: dict[str, list[int]] = {"none": [], "a chosen": [0], "a rejected": [1], "a pair": [-2, -1]}
OWN = {"dpo": ("label_smoothing", 0.1), "dpop": ("penalty", 50.0), "simpo": ("margin", 0.5), "cpo": ("nll", 1.0)}
COMMON: dict[str, tuple[Any, ...]] = {
    "size": ((3, 6), (1, 5), (1, 1), (6, 4)),  # pairs and slots
    "layout": ("after a prompt", "holes", "left-padded", "whole", "one token"),
    "empty": tuple(EMPTY),
    "step": (1.0, 0.0, 0.1, 15.0),
    "dtype": DTYPES,
    "nan_padding": (False, True),
    "beta": (0.1, 1.0, 4.0),
}
KINDS = ("ties", "zeros", "not scored", "infinite", "all negative")  # of scores


def valid_rows(
    rng: np.random.Generator,
    *,
    size: tuple[int, int],
    layout: str,
    empty: str,
    step: float,
    dtype: str,
    nan_padding: bool,
) -> dict[str, Array]:
    """Return log-probs of pairs, and the masks of completions and of all tokens."""
    (pairs, width), slots = size, np.arange(size[1])
    starts = rng.integers(0, max(1, width // 2), 2 * pairs)[:, None]
    ends = starts + 1 if layout == "one token" else rng.integers(starts + 1, width + 1)
    mask, every = (slots >= starts) & (slots < ends), slots < ends
    if layout == "left-padded":
        mask, every = mask[:, ::-1].copy(), every[:, ::-1]
    if layout == "whole":
        mask, every = np.ones(mask.shape, bool), np.ones(mask.shape, bool)
    if layout == "holes":
        mask &= (rng.random(mask.shape) < 0.6) | (slots == starts)
    mask[EMPTY[empty]] = False
    policy = arrays.logprobs(rng, mask.shape) - 1e-3
    both = {"policy": policy, "reference": policy - rng.normal(0.0, step, mask.shape)}
    made = {name: np.where(nan_padding & ~every, np.nan, x).astype(dtype) for name, x in both.items()}
    return {**made, "mask": mask, "attention_mask": every}


def valid(
    rng: np.random.Generator,
    loss: str,
    beta: float,
    constant: str,
    lengths: str,
    reference: str,
    tokens: str,
    **choices: Any,
) -> dict[str, Any]:
    """Return a call of `preference_loss`; ORPO needs tokens on both sides."""
    made: dict[str, Any] = valid_rows(rng, **{**choices, "empty": "none" if loss == "orpo" else choices["empty"]})
    if loss in ALONE or reference == "none":
        made["reference"] = None
    if loss != "orpo" or tokens == "completion":
        del made["attention_mask"]
    made |= NONE
    if loss in OWN:
        name, usual = OWN[loss]
        made[name] = {"usual": usual, "zero": 0.0, "another": 0.375}[constant]
    return {**made, "lengths": lengths if loss == "ipo" else None, "loss": loss, "beta": beta}


def valid_labelled(
    rng: np.random.Generator,
    desirable: str,
    mismatched: tuple[float, int],
    weights: tuple[float, float],
    beta: float,
    **choices: Any,
) -> dict[str, Any]:
    """Return a call of `kto_loss`."""
    made: dict[str, Any] = valid_rows(rng, **choices)
    del made["attention_mask"]
    rows = np.arange(len(made["mask"]))
    made |= {"desirable": {"all": rows >= 0, "none": rows < 0, "some": rows % 3 > 0}[desirable], "beta": beta}
    mean, count = mismatched
    made["mismatched"] = rng.normal(mean, 0.3 if mean else 0.0, count).astype(choices["dtype"])
    return {**made, "desirable_weight": weights[0], "undesirable_weight": weights[1]}


def valid_scores(rng: np.random.Generator, count: int, kind: str, group_size: int = 2) -> Array:
    """Return scores (P, G): with ties, some not scored, infinite ones, or zeros of both signs."""
    grid = rng.integers(-2, 3, (count, group_size)).astype(np.float64)
    if kind == "zeros":
        grid = np.where(rng.random(grid.shape) < 0.5, 0.0, -0.0)
    if kind == "not scored":
        grid[rng.random(grid.shape) < 0.4] = np.nan
    if kind == "infinite":
        grid[rng.random(grid.shape) < 0.5] = -np.inf
        grid[0, -1] = np.inf
    return -1.0 - np.abs(rng.normal(0.0, 1.0, grid.shape)) if kind == "all negative" else grid


def valid_pairs(rng: np.random.Generator, **choices: Any) -> dict[str, Any]:
    """Return a call of `prefer`."""
    return {"scores": valid_scores(rng, **choices).reshape(-1)}


def valid_groups(rng: np.random.Generator, **choices: Any) -> dict[str, Any]:
    """Return a call of `best_of_n`: one of each group at least is scored."""
    grid = valid_scores(rng, **choices)
    grid[np.isnan(grid).all(axis=1), -1] = -3.0
    return {"scores": grid.reshape(-1), "group_size": choices["group_size"]}


GENERATORS = (
    Generator(
        "preference_loss",
        {
            "loss": ("dpo", "hinge", "ipo", "dpop", "simpo", "orpo", "cpo"),
            **COMMON,
            "constant": ("usual", "zero", "another"),
            "lengths": ("sum", "mean"),
            "reference": ("given", "none"),
            "tokens": ("completion", "all"),
        },
        valid,
    ),
    Generator(
        "kto_loss",
        {
            **COMMON,
            "desirable": ("some", "all", "none"),
            "mismatched": ((1.0, 5), (-1.0, 5), (0.5, 1), (0.0, 3)),  # mean of log-ratios, and how many
            "weights": ((1.0, 1.33), (0.0, 2.0), (1.0, 1.0)),
        },
        valid_labelled,
    ),
    Generator("prefer", {"count": (5, 1, 2), "kind": KINDS}, valid_pairs),
    Generator("best_of_n", {"count": (4, 1, 3), "group_size": (4, 1, 2), "kind": KINDS}, valid_groups),
)
