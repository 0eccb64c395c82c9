"""Compose a case of a policy loss with the choices of a subject: axes, widths, a KL, a layout, a dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gates.families.loss import calls
from gates.model import Case
from gates_reference.algorithms import AXES, Algorithm, composed

BOTH_RATIOS = ("off-policy", "on-policy")  # for laws that compare a call with and without `old`
KL = ("kl_estimator", "kl_ratio", "kl_clamp", "kl_aggregation")  # conventions of a KL in the loss
ROWS = 8  # of a batch, unless it says otherwise
BEYOND = 3  # padding columns after the longest row
WORDS = {  # of the conventions that a case can be asked with instead of its own
    "kl_estimator": ("k1", "k2", "k3"),
    "kl_ratio": ("none", "token", "sequence"),
    "dapo_denominator": ("global", "group", "trl"),
    "cispo_bound": ("relative", "absolute"),
    "clip_width": ("one", "two"),
    "ratio": BOTH_RATIOS,
    "kl_aggregation": ("row-mean", "row-sum", "token-mean"),
    "rows": ("mask", "holes", "all", "lengths", "flat", "row-mask"),
    "advantages": ("row", "token"),
    "dtype": ("float32", "float64"),
}


def with_choices(
    choices: Mapping[str, Any],
    case_of: Callable[..., Case],
    row: Algorithm,
    changes: Mapping[str, Any],
    data: Mapping[str, Any],
    layout: Mapping[str, Any],
) -> Case:
    """Return a case with other choices: axes, widths, a KL, a layout or a dtype.

    Args:
        choices: the other ones.
        case_of: makes the case from its data, layout and changes.
        row: of the table, with the choices of the case.
        changes: constants and choices that the case sets.
        data: keywords of its batch.
        layout: `rows`, `weights` and `beyond` of the case.

    Raises:
        ValueError: they do not go together.
    """
    _check(choices)
    axes = {axis: word for axis, word in choices.items() if axis in AXES}
    other = calls.row_for(row.name, {**changes, **axes})
    batch = {**data, **_near(other, data.get("spread", 0.0)), **_batch(choices, data)}
    if other.by_row and (layout["weights"] == "token" or batch.get("by_token")):
        raise ValueError("where a row has one ratio, it has one advantage and one weight")
    kept = {key: value for key, value in changes.items() if key not in _lost(row, axes)}
    kept |= axes | {name: word for name, word in choices.items() if name in {*KL, "count_eps"}}
    kept |= _denominator(choices, {**calls.batch_of(other), **batch}.get("rows", ROWS))
    if "ratio" in choices:
        kept = {k: v for k, v in kept.items() if k != "old"}
        kept |= {"old": None} if choices["ratio"] == "on-policy" else {}
    kept |= _bounds(other, {**calls.WHOLE, **other.constants, **kept}, choices)
    return case_of(data=batch, **{**layout, **_layout(choices, layout)}, **kept)


def _batch(choices: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a batch whose layout, dtype or advantages have other choices."""
    changed: dict[str, Any] = {"dtype": choices["dtype"]} if "dtype" in choices else {}
    if "advantages" in choices:
        changed["by_token"] = choices["advantages"] == "token"
    rows = choices.get("rows")
    if rows is None:
        return changed
    if data.get("empty_row") or data.get("found") == "short" or data.get("width") == 1:
        raise ValueError("the case is about rows of few tokens, by a mask")
    return {**changed, "holes": rows == "holes", "equal_lengths": rows == "all"}


def _layout(choices: Mapping[str, Any], layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return how rows are marked off, and how far arrays are wider than their longest row."""
    rows = choices.get("rows")
    if rows is None:
        return {}
    wide = BEYOND if rows == "lengths" else layout["beyond"] if rows in {"mask", "holes", "row-mask"} else 0
    return {"rows": "mask" if rows == "holes" else rows, "beyond": wide}


def _check(choices: Mapping[str, Any]) -> None:
    """Raise ValueError for a declared choice that no case has."""
    for name, words in WORDS.items():
        if name in choices and choices[name] not in words:
            raise ValueError(f"{name}={choices[name]!r} is none of {', '.join(map(repr, words))}")
    if "count_eps" in choices and not 0.0 <= float(choices["count_eps"]) < 1.0:
        raise ValueError(f"count_eps={choices['count_eps']!r} must be from 0 to below 1")


def _denominator(choices: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return the settings of the declared denominator of a mean over tokens."""
    if "dapo_denominator" not in choices:
        return {}
    if choices["dapo_denominator"] == "group" and rows % 4:
        raise ValueError("the rows are no whole groups of four")
    constants: dict[str, dict[str, Any]] = {"global": {}, "group": {"group_size": 4}, "trl": {"tokens_in_step": 171.5}}
    nothing = {"group_size": None, "tokens_in_step": None}
    return {"dapo_denominator": choices["dapo_denominator"], **nothing, **constants[choices["dapo_denominator"]]}


def _bounds(row: Algorithm, choice: Mapping[str, Any], choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the widths by which a case's bound has the choices of a subject, such as one width of a clip for both sides."""
    low, high, bounds = choice["epsilon_low"], choice["epsilon_high"], dict[str, Any]()
    if choices.get("lower_bound") and row.bound == "cap" and choice["cispo_bound"] == "absolute" and high < 1.0:
        raise ValueError("a cap below the lower bound has no agreed meaning")
    if "clip_width" in choices and row.bound in {"clip", "log-clip"}:
        bounds["epsilon_high"] = low if choices["clip_width"] == "one" else 1.25 * low
    if "lower_bound" in choices and row.bound == "cap":
        bounds["epsilon_low"] = 0.2 if choices["lower_bound"] else None
    if "cispo_bound" in choices and row.bound == "cap":  # the same cap c
        bounds["cispo_bound"] = choices["cispo_bound"]
        bounds["epsilon_high"] = high + (1.0 if choices["cispo_bound"] == "absolute" else -1.0)
        if bounds["epsilon_high"] <= 0.0:
            raise ValueError("a cap below 1 is not 1 + ε_high of any width")
    return bounds


def _near(row: Algorithm, spread: float) -> dict[str, float]:
    """Return the spread that a row's product of ratios needs to stay a number, where a case has a wider one."""
    most = calls.batch_of(row).get("spread", 1.0) if row.ratio_level == "seq_sum" else math.inf
    return {"spread": most} if spread > most else {}


def _lost(row: Algorithm, axes: Mapping[str, Any]) -> set[str]:
    """Return the constants that do not exist under other choices: the row's own, and those of a changed bound."""
    lost = set(row.constants) - set(composed(row.name, **axes).constants)
    return lost | ({"delta", "epsilon_low", "epsilon_high"} if {"bound", "ratio_level"} & set(axes) else set())
