"""Inputs of the ops of two policies' log-probs: sampled KL, importance ratios, off-policy weights and statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from valid_inputs import Generator, Rng, rows

PADDING = ("numbers", "nan")
PAIR = {**rows.FACTORS, "step": tuple(rows.STEPS), "padding": PADDING}


def pair(rng: Rng, names: tuple[str, ...], levels: dict[str, str]) -> tuple[rows.Rows, dict[str, Any]]:
    """Return rows, and log-probs of each name in them; the first one is the policy's, of which the others are moved."""
    held = rows.draw(rng, levels["shape"], levels["layout"], levels["empty"])
    first = rows.logprobs(rng, held)
    if levels["step"] == "quarters":
        first = np.round(first * 4) / 4
    values = [first, *(rows.moved(rng, first, levels["step"]) for _ in names[1:])]
    if levels["padding"] == "nan" and held.layout != "flat":
        values = [np.where(held.valid, x, np.nan) for x in values]
    given = {name: held.place(x, levels["dtype"]) for name, x in zip(names, values, strict=True)}
    return held, {**given, **held.given}


def kl(rng: Rng, **levels: str) -> dict[str, Any]:
    """Return a call of `token_kl`."""
    _, given = pair(rng, ("policy", "reference", "old"), levels)
    if levels["old"] == "none":
        given["old"] = None
    clamp = {"none": None, "far": 10.0, "at a quarter": 0.25, "tiny": 1e-6}[levels["clamp"]]
    words = {name: levels[name] for name in ("estimator", "reduction", "kl_ratio")}
    return {**given, **words, "kl_clamp": clamp}


def ratio(rng: Rng, level: str, **levels: str) -> dict[str, Any]:
    """Return a call of `importance_ratio`."""
    return {**pair(rng, ("policy", "old"), levels)[1], "level": level}


def weights(rng: Rng, correction: str, level: str, bounds: str, **levels: str) -> dict[str, Any]:
    """Return a call of `importance_weights`, some log-probs not recorded."""
    _, given = pair(rng, ("old", "sampling"), levels)
    low, high = {
        "above": (None, 1.5),
        "both": (0.5, 2.0),
        "from one": (1.0, 3.0),
        "one": (1.0, 1.0),
        "to one": (0.0, 1.0),
    }[bounds]
    if levels["recorded"] != "all":
        missing = rng.random(given["sampling"].shape) < (1.0 if levels["recorded"] == "none" else 0.3)
        given["sampling"] = np.where(missing, np.nan, given["sampling"]).astype(levels["dtype"])
    return {**given, "correction": correction, "level": level, "c_min": low, "c_max": high}


def statistics(rng: Rng, advantages: str, widths: str, **levels: str) -> dict[str, Any]:
    """Return a call of `ratio_statistics`."""
    held, given = pair(rng, ("policy", "behaviour"), levels)
    low, high = {"usual": (0.2, 0.28), "none": (0.0, 0.0), "wide": (0.9, 5.0)}[widths]
    drawn = rng.normal(0.0, 1.0, len(held.valid)).astype(levels["dtype"])
    signs = {"none": None, "both": drawn, "positive": np.abs(drawn), "negative": -np.abs(drawn), "zero": 0.0 * drawn}
    return {**given, "epsilon_low": low, "epsilon_high": high, "advantages": signs[advantages]}


GENERATORS = (
    Generator(
        "token_kl",
        {
            **PAIR,
            "estimator": ("k1", "k2", "k3"),
            "reduction": ("none", "sum", "mean"),
            "kl ratio": ("none", "token", "sequence"),
            "clamp": ("none", "far", "at a quarter", "tiny"),
            "old": ("given", "none"),
        },
        kl,
    ),
    Generator("importance_ratio", {**PAIR, "level": ("token", "seq_mean", "seq_sum")}, ratio),
    Generator(
        "importance_weights",
        {
            **PAIR,
            "correction": ("tis", "mis"),
            "level": ("token", "seq_sum"),
            "bounds": ("above", "both", "from one", "one", "to one"),
            "recorded": ("all", "some", "none"),
        },
        weights,
    ),
    Generator(
        "ratio_statistics",
        {**PAIR, "advantages": ("none", "both", "positive", "negative", "zero"), "widths": ("usual", "none", "wide")},
        statistics,
    ),
)
