"""Inputs of the ops of preferences: losses of pairs and of labelled rows, and what chooses among completions."""

from __future__ import annotations

from typing import Any

import numpy as np

from valid_inputs import Generator, Rng
from valid_inputs.rows import DTYPES, Array

SIZES = {"one pair": (1, 5), "one token": (1, 1), "square": (3, 6), "many": (6, 4)}
MASKS = ("after a prompt", "holes", "left-padded", "whole", "one token")
EMPTY = ("none", "a chosen", "a rejected", "a pair")
STEPS = {"same": 0.0, "near": 0.1, "typical": 1.0, "far": 15.0}
COMMON = {
    "size": tuple(SIZES),
    "mask": MASKS,
    "empty": EMPTY,
    "step": tuple(STEPS),
    "dtype": DTYPES,
    "padding": ("numbers", "nan"),
}


def rows(rng: Rng, size: str, mask: str, empty: str, step: str, dtype: str, padding: str) -> dict[str, Array]:
    """Return log-probs of pairs, and the masks of completions and of all tokens."""
    pairs, width = SIZES[size]
    count, slots = 2 * pairs, np.arange(width)
    starts = rng.integers(0, max(1, width // 2), count)
    ends = rng.integers(starts + 1, width + 1)
    if mask == "one token":
        ends = starts + 1
    valid = (slots >= starts[:, None]) & (slots < ends[:, None])
    every = slots < ends[:, None]
    if mask == "left-padded":
        valid, every = valid[:, ::-1], every[:, ::-1]
    if mask == "whole":
        valid = every = np.ones((count, width), bool)
    if mask == "holes":
        valid = valid & ((rng.random(valid.shape) < 0.6) | (slots == starts[:, None]))
    gone = {"none": [], "a chosen": [0], "a rejected": [1], "a pair": [count - 2, count - 1]}[empty]
    valid = valid.copy()
    valid[gone] = False
    policy = -rng.gamma(1.5, 0.8, valid.shape) - 1e-3
    reference = policy - rng.normal(0.0, STEPS[step], valid.shape)
    if padding == "nan":
        policy, reference = (np.where(every, x, np.nan) for x in (policy, reference))
    return {
        "policy": policy.astype(dtype),
        "reference": reference.astype(dtype),
        "mask": valid,
        "attention_mask": every,
    }


def pair_loss(
    rng: Rng, loss: str, beta: str, constant: str, lengths: str, reference: str, likelihood: str, **levels: str
) -> dict[str, Any]:
    """Return a call of `preference_loss`; orpo, simpo and cpo have no reference, and need tokens on both sides."""
    if loss in {"orpo", "simpo", "cpo"}:
        levels["empty"] = "none" if loss == "orpo" else levels["empty"]
        reference = "none"
    given: dict[str, Any] = rows(rng, **levels)
    every = given.pop("attention_mask")
    if reference == "none":
        given["reference"] = None
    if loss == "orpo" and likelihood == "all tokens":
        given["attention_mask"] = every
    given |= dict.fromkeys(("label_smoothing", "lengths", "penalty", "margin", "nll"))
    own = {"dpo": ("label_smoothing", 0.1), "dpop": ("penalty", 50.0), "simpo": ("margin", 0.5), "cpo": ("nll", 1.0)}
    if loss in own:
        name, usual = own[loss]
        given[name] = {"usual": usual, "zero": 0.0, "another": 0.375}[constant]
    if loss == "ipo":
        given["lengths"] = lengths
    return {**given, "loss": loss, "beta": float(beta)}


def labelled(rng: Rng, desirable: str, mismatched: str, weights: str, beta: str, **levels: str) -> dict[str, Any]:
    """Return a call of `kto_loss`."""
    given: dict[str, Any] = rows(rng, **levels)
    del given["attention_mask"]
    count = len(given["policy"])
    labels = {"all": np.ones(count, bool), "none": np.zeros(count, bool), "some": np.arange(count) % 3 > 0}[desirable]
    shift, many = {"above": (1.0, 5), "below": (-1.0, 5), "one": (0.5, 1), "zero": (0.0, 3)}[mismatched]
    drawn = shift + rng.normal(0.0, 0.3, many) * (mismatched != "zero")
    up, down = {"usual": (1.0, 1.33), "one-sided": (0.0, 2.0), "equal": (1.0, 1.0)}[weights]
    return {
        **given,
        "desirable": labels,
        "mismatched": drawn.astype(given["policy"].dtype),
        "beta": float(beta),
        "desirable_weight": up,
        "undesirable_weight": down,
    }


def scores(rng: Rng, count: int, size: int, kind: str) -> Array:
    """Return scores of groups: with ties, some not scored, infinite ones, and zeros of both signs."""
    grid = rng.integers(-2, 3, (count, size)).astype(np.float64)
    if kind == "zeros":
        grid = np.where(rng.random(grid.shape) < 0.5, 0.0, -0.0)
    if kind == "not scored":
        grid[rng.random(grid.shape) < 0.4] = np.nan
    if kind == "infinite":
        grid[rng.random(grid.shape) < 0.5] = -np.inf
        grid[0, -1] = np.inf
    if kind == "all negative":
        grid = -1.0 - np.abs(rng.normal(0.0, 1.0, grid.shape))
    return grid


def best(rng: Rng, count: str, size: str, kind: str) -> dict[str, Any]:
    """Return a call of `best_of_n`: one of each group at least is scored."""
    grid = scores(rng, int(count), int(size), kind)
    grid[np.isnan(grid).all(axis=1), -1] = -3.0
    return {"scores": grid.reshape(-1), "group_size": int(size)}


KINDS = ("ties", "zeros", "not scored", "infinite", "all negative")
GENERATORS = (
    Generator(
        "preference_loss",
        {
            "loss": ("dpo", "hinge", "ipo", "dpop", "simpo", "orpo", "cpo"),
            **COMMON,
            "beta": ("0.1", "1.0", "4.0"),
            "constant": ("usual", "zero", "another"),
            "lengths": ("sum", "mean"),
            "reference": ("given", "none"),
            "likelihood": ("own", "all tokens"),
        },
        pair_loss,
    ),
    Generator(
        "kto_loss",
        {
            **COMMON,
            "desirable": ("all", "none", "some"),
            "mismatched": ("above", "below", "one", "zero"),
            "weights": ("usual", "one-sided", "equal"),
            "beta": ("0.1", "1.0", "4.0"),
        },
        labelled,
    ),
    Generator(
        "prefer",
        {"count": ("1", "2", "5"), "kind": KINDS},
        lambda rng, count, kind: {"scores": scores(rng, int(count), 2, kind).reshape(-1)},
    ),
    Generator("best_of_n", {"count": ("1", "3", "4"), "size": ("1", "2", "4"), "kind": KINDS}, best),
)
