"""Rewards and conventions that several gates of advantages use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gates.model import Array, Bound, Case, Level

UNSCALED: dict[str, Any] = {"scale": "none", "ddof": None, "eps": None, "eps_mode": None}  # nothing divides
PRESETS: dict[str, dict[str, Any]] = {
    "trl": {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"},
    "verl": {"scale": "group", "ddof": 1, "eps": 1e-6, "eps_mode": "add", "baseline": "mean"},
    "rlox": {"scale": "group", "ddof": 0, "eps": 1e-8, "eps_mode": "threshold", "baseline": "mean"},
    "mlxrl": {"scale": "group", "ddof": 0, "eps": 1e-8, "eps_mode": "inside", "baseline": "mean"},
    "batch": {"scale": "batch", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"},
    "dr-grpo": {**UNSCALED, "baseline": "mean"},
    "rloo": {**UNSCALED, "baseline": "leave-one-out"},
}
DTYPES = ("float32", "float64")
OF_GROUP = ("mean", "leave-one-out")
OPTIONAL: Mapping[str, tuple[str, ...]] = {  # choices that are asked only of subjects that declare them
    "baseline": ("batch", "none"),
    "eps_mode": ("floor", "threshold-add"),
}

ROUNDING = "k·2u·S with S = max|R_g|/(std ⊕ ε): a subtraction and a division conditioned by the rewards' size"
BOUNDS = {
    "advantage error in 2u·S (float32)": Bound(
        "derived", f"{ROUNDING}; k = 4, sums of float32 data in float64", 4.0, level="precision"
    ),
    "advantage error in 2u·S (float64)": Bound(
        "derived", f"{ROUNDING}; k = 8, compensated sums and the oracle's own rounding", 8.0, level="precision"
    ),
}
WORDS: Mapping[str, tuple[Any, ...]] = {
    "scale": ("group", "batch", "none"),
    "ddof": (0, 1, None),
    "eps_mode": ("add", "inside", "threshold", "floor", "threshold-add", None),
    "baseline": ("mean", "leave-one-out", "batch", "none"),
}
SMALL = 1e-5  # rewards of this size lie below every ε but 1e-6 and 1e-8, so that it shows where ε stands


def rewards(rng: np.random.Generator, groups: int, size: int, dtype: str) -> Array:
    """Return prompt-major rewards (groups · size,) whose groups differ by no less than a tenth of their size.

    In turn: 0/1 scores, a uniform score, a score in tenths, and one of the size of SMALL.
    """
    kinds = (
        lambda: rng.integers(0, 2, size).astype(np.float64),
        lambda: rng.uniform(-1.0, 1.0, size),
        lambda: rng.integers(-5, 11, size) / 10.0,
        lambda: rng.normal(0.0, SMALL, size),
    )
    rows = []
    for index in range(groups):
        row = kinds[index % len(kinds)]()
        row[0] += 0.5 if row.max() == row.min() else 0.0
        rows.append(row)
    return np.concatenate(rows).astype(dtype)


def case(
    name: str,
    make: Callable[[np.random.Generator, Mapping[str, Any]], Mapping[str, Any]],
    choice: Mapping[str, Any],
    dtype: str,
    *,
    quick: bool = False,
    level: Level | None = None,
    follows: tuple[str, ...] = (),
    varied: frozenset[str] = frozenset(),
) -> Case:
    """Return a case with the conventions of a choice.

    Args:
        name: of the case.
        make: returns the inputs from a generator and the choice.
        choice: scale, ddof, ε, its mode and the baseline.
        dtype: of the rewards.
        quick: whether it is asked with `--quick`.
        level: instead of the gate's.
        follows: the baselines with which a subject that declares other choices is asked with these instead.
        varied: the conventions that vary within the case, which are no condition.
    """

    def compose(choices: Mapping[str, Any]) -> Case:
        other = merged(choice, choices)
        if other["baseline"] not in follows:
            raise ValueError(f"the case is not about baseline {other['baseline']!r}")
        return case(name, make, other, dtype, quick=quick, level=level, follows=follows, varied=varied)

    return Case(
        name,
        lambda rng: make(rng, choice),
        quick=quick,
        level=level,
        conventions={"dtype": dtype, **{name: value for name, value in choice.items() if name not in varied}},
        declared={name: choice[name] for name, words in OPTIONAL.items() if choice[name] in words},
        compose=compose if follows else None,
        changeable=tuple(choice) if follows else (),
    )


def merged(choice: Mapping[str, Any], choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return a choice with others instead of its own.

    Raises:
        ValueError: they do not go together.
    """
    merged = {**choice, **choices}
    for name, words in WORDS.items():
        if merged[name] not in words:
            raise ValueError(f"{name}={merged[name]!r} is none of {', '.join(map(repr, words))}")
    if merged["scale"] == "none":
        return {**merged, **UNSCALED}
    if missing := [name for name in ("ddof", "eps", "eps_mode") if merged[name] is None]:
        raise ValueError(f"scale {merged['scale']!r} needs a declared {missing[0]}")
    if merged["scale"] == "group" and merged["baseline"] in OPTIONAL["baseline"]:
        raise ValueError("a baseline that is not the group's has no scale 'group'")
    return merged


def least_spread(rewards: Array, group_size: int) -> float:
    """Return the least deviation of a group in units of its largest |reward|; one with fewer than two scored is none."""
    groups = rewards.astype(np.float64).reshape(-1, group_size)
    scored = [row[~np.isnan(row)] for row in groups]
    return min(
        (float(x.std() / max(np.max(np.abs(x)), np.finfo(float).tiny)) for x in scored if x.size > 1), default=1.0
    )
