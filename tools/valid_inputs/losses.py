"""Inputs of the policy losses: algorithms, their options, and rows of every kind.

No number lies exactly at a clip or a clamp, where either branch is right (docs/definitions.md, "Branch points").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.algorithms import ALGORITHMS
from valid_inputs import Generator, Rng, rows

CONSTANTS = ("usual", "equal", "wide", "tight")
EPSILON = {"usual": (0.2, 0.28), "equal": (0.1, 0.1), "wide": (0.5, 0.75), "tight": (0.01, 0.02)}
FACTORS = {
    "algorithm": tuple(ALGORITHMS),
    **rows.FACTORS,
    "step": tuple(rows.STEPS),
    "advantages": ("both", "positive", "negative", "zero", "one", "token"),
    "weights": ("none", "row", "token", "zero", "large"),
    "old": ("given", "none"),
    "row mask": ("none", "first", "all but first", "odd"),
    "estimator": ("none", "k1", "k2", "k3"),
    "kl ratio": ("none", "token", "sequence"),
    "clamp": ("none", "far", "near", "tiny"),
    "constants": CONSTANTS,
    "delta": ("none", "near", "far"),
    "denominator": ("global", "group", "trl"),
    "parts": ("one", "each", "uneven"),
    "bound": ("relative", "absolute"),
    "padding": ("numbers", "nan"),
}


def make(rng: Rng, algorithm: str, **levels: str) -> dict[str, Any]:
    """Return a call of `policy_loss`."""
    one = ALGORITHMS[algorithm]
    held = rows.draw(rng, levels["shape"], levels["layout"], levels["empty"])
    dtype, count = levels["dtype"], len(held.valid)
    policy = rows.logprobs(rng, held)
    if levels["step"] == "quarters":
        policy = np.round(policy * 4) / 4
    logs = {"policy": policy, "old": rows.moved(rng, policy, levels["step"])}
    logs["reference"] = rows.moved(rng, policy, "some the same")
    if levels["clamp"] == "near":
        logs["reference"] = np.where(rng.random(policy.shape) < 0.4, policy - 0.5, logs["reference"])
    if levels["padding"] == "nan" and held.layout != "flat":
        logs = {name: np.where(held.valid, x, np.nan) for name, x in logs.items()}
    given: dict[str, Any] = {name: held.place(x, dtype) for name, x in logs.items()}
    if levels["old"] == "none":
        given["old"] = None
    given |= held.given | _options(rng, algorithm, count, levels) | _kl(algorithm, levels)
    if given["beta"] == 0.0:
        given["reference"] = None
    by_token = levels["advantages"] == "token" and not one.by_row
    given["advantages"] = _advantages(rng, held, levels["advantages"], dtype, by_token=by_token)
    given["weights"] = _weights(rng, held, levels["weights"], dtype, by_row=one.by_row)
    masks = {"first": np.arange(count) > 0, "all but first": np.arange(count) == 0, "odd": np.arange(count) % 2 == 0}
    if levels["row_mask"] != "none" and held.layout != "flat":
        given["row_mask"] = masks[levels["row_mask"]]
    return given


def _advantages(rng: Rng, held: rows.Rows, kind: str, dtype: str, *, by_token: bool) -> Any:
    shape = held.valid.shape if by_token else held.valid.shape[:1]
    drawn = rng.normal(0.0, 1.0, shape)
    drawn[rng.random(shape) < 0.15] = 0.0
    changed = {"positive": np.abs(drawn), "negative": -np.abs(drawn), "zero": 0.0 * drawn, "one": np.sign(drawn)}
    drawn = changed.get(kind, drawn)
    return held.place(drawn, dtype) if by_token else drawn.astype(dtype)


def _weights(rng: Rng, held: rows.Rows, kind: str, dtype: str, *, by_row: bool) -> Any:
    if kind == "none":
        return None
    by_token = kind == "token" and not by_row
    drawn = rng.uniform(0.2, 2.0, held.valid.shape if by_token else held.valid.shape[:1])
    drawn[rng.random(drawn.shape) < 0.25] = 0.0
    drawn = {"zero": 0.0 * drawn, "large": 100.0 * drawn}.get(kind, drawn)
    return held.place(drawn, dtype) if by_token else drawn.astype(dtype)


def _options(rng: Rng, algorithm: str, count: int, levels: dict[str, str]) -> dict[str, Any]:
    """Return the constants of an algorithm, None for those that it does not have."""
    low, high = EPSILON[levels["constants"]]
    row = ALGORITHMS[algorithm]
    own = row.constants
    given: dict[str, Any] = dict.fromkeys(
        ("delta", "max_length", "micro_batches", "dapo_denominator", "group_size", "tokens_in_step", "cispo_bound")
    ) | dict.fromkeys(("sapo_temperature_positive", "sapo_temperature_negative"))
    optional = row.bound == "none" and row.ratio_level != "none" and levels["bound"] == "absolute"  # TRL's clip of RLOO
    clipped = row.bound in {"clip", "log-clip"} or optional
    given |= {"epsilon_low": low if clipped else None, "epsilon_high": high if clipped else None}
    if levels["delta"] != "none" and clipped and row.bound != "log-clip":
        given["delta"] = 1.0 + high + (0.05 if levels["delta"] == "near" else 1.0)
    if "max_length" in own:
        given["max_length"] = {"usual": 16, "equal": 1, "wide": 100, "tight": 3}[levels["constants"]]
    if "micro_batches" in own:
        uneven = [1, count - 1] if count > 1 else [1]
        given["micro_batches"] = {"one": [count], "each": [1] * count, "uneven": uneven}[levels["parts"]]
    if "dapo_denominator" in own:
        given["dapo_denominator"] = levels["denominator"]
        sizes = [size for size in (1, 2, 3, count) if count % size == 0]
        given["group_size"] = int(rng.choice(sizes)) if levels["denominator"] == "group" else None
        given["tokens_in_step"] = float(rng.choice([0.5, 17.0, 171.5])) if levels["denominator"] == "trl" else None
    if row.bound == "cap":
        given["cispo_bound"] = levels["bound"]
        given["epsilon_high"] = high
    given |= {name: value for name, value in own.items() if name.startswith("vespo")}
    if row.bound == "gate":
        up, down = {"usual": (1.0, 1.05), "equal": (1.0, 1.0), "wide": (0.25, 4.0), "tight": (30.0, 60.0)}[
            levels["constants"]
        ]
        given |= {"sapo_temperature_positive": up, "sapo_temperature_negative": down}
    return given


def _kl(algorithm: str, levels: dict[str, str]) -> dict[str, Any]:
    if levels["estimator"] == "none" or not ALGORITHMS[algorithm].kl_in_loss:
        return {"beta": 0.0, "kl_estimator": None, "kl_ratio": None}
    chosen: dict[str, Any] = {"beta": 0.25, "kl_estimator": levels["estimator"], "kl_ratio": levels["kl_ratio"]}
    if levels["clamp"] != "none":
        chosen["kl_clamp"] = {"far": 10.0, "near": 0.45, "tiny": 1e-3}[levels["clamp"]]
    return chosen


def completions(rng: Rng, algorithm: str, **levels: str) -> dict[str, Any]:
    """Return a call of `loss_of_completions`: ended ones, truncated ones, and parts of whole rows."""
    given = make(
        rng, algorithm, **{**levels, "layout": "mask", "padding": "numbers", "row_mask": "none", "empty": "none"}
    )
    count, width = given["policy"].shape
    if given["old"] is None:
        given["old"] = given["policy"].copy()
    lengths = rng.integers(1, width + 1, count)
    ended = {"all": np.ones(count, bool), "none": np.zeros(count, bool), "some": rng.random(count) < 0.6}[
        levels["ended"]
    ]
    sizes = [size for size in (1, 2, 3, count) if count % size == 0]
    kept = ("policy", "old", "reference", "advantages", "epsilon_low", "epsilon_high", "beta", "dapo_denominator")
    return {
        **{name: given[name] for name in kept},
        "advantages": rng.normal(0.0, 1.0, count).astype(given["policy"].dtype),
        "algorithm": algorithm,
        "lengths": lengths.astype(np.int64),
        "ended": ended | (np.arange(count) == 0),  # a step without any token has no denominator
        "mask_truncated": levels["masked"] == "yes",
        "group_size": int(rng.choice(sizes)),
        "max_length": width,
        "micro_batch_rows": int(rng.choice([1, 2, 5, count])),
        **({"kl_ratio": given["kl_ratio"], "kl_estimator": given["kl_estimator"]} if given["beta"] else {}),
    }


COMPLETIONS = {name: FACTORS[name] for name in ("algorithm", "shape", "dtype", "step", "constants", "denominator")}
GENERATORS = (
    Generator("policy_loss", FACTORS, lambda rng, **levels: {**make(rng, **levels), "algorithm": levels["algorithm"]}),
    Generator(
        "loss_of_completions",
        {**COMPLETIONS, "ended": ("all", "none", "some"), "masked": ("yes", "no")},
        lambda rng, **levels: completions(rng, **{**_OTHERS, **levels}),
    ),
)
_OTHERS = {
    "advantages": "both",
    "weights": "none",
    "old": "given",
    "estimator": "none",
    "kl_ratio": "none",
    "clamp": "none",
    "delta": "none",
    "parts": "one",
    "bound": "relative",
}
