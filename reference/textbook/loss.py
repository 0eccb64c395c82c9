"""Textbook programs of the policy losses: token by token, then the mean, then autograd's gradient.

A KL is added to each token (TRL) or to the loss (verl). Gradients are autograd's and, where it rounds otherwise, those that
are written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reference.textbook.number import (
    UNIT,
    Bools,
    Floats,
    Number,
    clip,
    constant,
    exp,
    expm1,
    gradient,
    maximum,
    minimum,
    number,
    sigmoid,
    where,
    widest,
)

BY_ROW = frozenset(("gspo", "rloo", "gmpo", "luspo"))


class Step(NamedTuple):
    """A step as (B, T) numbers, 0 where no token stands; `weights` is 1 where none are given, `tokens` is (B, 1)."""

    policy: Number
    log_ratio: Number
    advantages: Number
    weights: Number | None
    counts: Bools
    tokens: Floats
    settings: dict[str, Any]

    def setting(self, name: str) -> Number:
        """A constant of the loss, which the program may hold in the dtype or wider."""
        return scalar(self.settings[name], self.policy.dtype)


def scalar(value: float, dtype: str) -> Number:
    """A constant such as epsilon, in the dtype or wider."""
    return Number(float(value), dtype, UNIT[dtype] * abs(value))


def policy_loss(policy: npt.ArrayLike, **inputs: Any) -> dict[str, Floats]:
    """Return how far loss and gradient of an honest program in the dtype of `policy` may lie from the definition.

    Args:
        policy: log-probs as in `reference.oracle.losses.policy_loss`.
        **inputs: all its other keywords.

    Returns:
        "loss" (), "gradient" of the shape of `policy`: float64 limits, inf where no claim can be made.
    """
    grid = Grid.of(np.shape(policy), **inputs)
    losses, slopes = forms(grid, grid.wide(policy, number(policy).dtype), inputs)
    return {"loss": widest(losses), "gradient": grid.back(widest(slopes))}


def policy_loss_in_parts(*, parts: Sequence[int], **inputs: Any) -> dict[str, Floats]:
    """Return the same for the sum of micro-batches, each with its share of the step's loss."""
    return policy_loss(**inputs, parts=parts)


class Grid(NamedTuple):
    """Where the tokens stand in (B, T); `flat` if they came as (N,)."""

    counts: Bools
    flat: bool

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        *,
        mask: Any = None,
        lengths: Any = None,
        row_mask: Any = None,
        **_: Any,
    ) -> Grid:
        """Return the grid of arrays of this shape."""
        if lengths is not None:
            sizes = np.asarray(lengths)
            width = max(int(sizes.max(initial=0)), 1) if len(shape) == 1 else shape[1]
            return cls(np.arange(width) < sizes[:, None], len(shape) == 1)
        counts = np.ones(shape, bool) if mask is None else np.asarray(mask, bool)
        return cls(counts if row_mask is None else counts & np.asarray(row_mask, bool)[:, None], False)

    def wide(self, values: Any, dtype: str) -> Number:
        """Return numbers of tokens, or of rows, as (B, T), 0 where no token stands."""
        if isinstance(values, Number):
            rows = values.reshape(-1, 1) * np.ones(self.counts.shape) if len(values.shape) == 1 else values
            return where(self.counts, rows, 0.0)
        array = np.asarray(values, np.float64)
        if self.flat and array.shape == (int(self.counts.sum()),):
            wide = np.zeros(self.counts.shape)
            wide[self.counts] = array
            return number(wide, dtype)
        spread = array[:, None] if array.ndim == 1 else array
        return number(np.where(self.counts, spread, 0.0), dtype)

    def back(self, wide: Floats) -> Floats:
        """Return a (B, T) array in the layout that came."""
        return wide[self.counts] if self.flat else wide


def forms(grid: Grid, policy: Number, inputs: dict[str, Any]) -> tuple[list[Number], list[Number]]:
    """Return the forms of the loss and those of the gradient, for a policy of (B, T).

    `advantages` of the rows and `weights` of the tokens may be numbers that carry their own errors.
    """
    dtype, counts = policy.dtype, grid.counts
    old = policy.detached() if inputs["old"] is None else grid.wide(inputs["old"], dtype)
    weights = inputs.get("weights")
    step = Step(
        policy,
        where(counts, policy - old, 0.0),
        grid.wide(inputs["advantages"], dtype),
        None if weights is None else grid.wide(weights, dtype),
        counts,
        np.maximum(counts.sum(axis=1, keepdims=True), 1.0),
        inputs,
    )
    term, by_hand = SURROGATES[inputs["algorithm"]](step)
    if step.weights is not None:
        term = term * step.weights
        by_hand = None if by_hand is None else by_hand * step.weights
    term = where(counts, term, 0.0)
    if not inputs["beta"]:
        whole = _mean(term, step)
        slopes = [gradient(whole, policy)[0]]
        if by_hand is not None:
            slopes.append(where(counts, by_hand * _row_weights(step), 0.0))
        return [whole], slopes
    penalty, penalty_by_hand = _kl(step, grid.wide(inputs["reference"], dtype))
    penalty, beta = where(counts, penalty, 0.0), step.setting("beta")
    whole, alone, added = _mean(term + beta * penalty, step), _mean(term, step), beta * _mean(penalty, step)
    losses = [whole, alone + added]
    slopes = [gradient(whole, policy)[0]]
    if by_hand is not None or penalty_by_hand is not None:
        weight = _row_weights(step)
        first = gradient(alone, policy)[0] if by_hand is None else by_hand * weight
        second = gradient(added, policy)[0] if penalty_by_hand is None else penalty_by_hand * beta * weight
        slopes.append(where(counts, first + second, 0.0))
    return losses, slopes


# --- surrogates: l of each token, and its slope by hand where that rounds otherwise than autograd's


def _sequence_mean(step: Step, log_ratio: Number) -> Number:
    return exp(log_ratio.sum(1, keepdims=True) / step.tokens)


def _clipped(step: Step, r: Number) -> Number:
    low, high = 1.0 - step.setting("epsilon_low"), 1.0 + step.setting("epsilon_high")
    bounded = r if step.settings.get("delta") is None else minimum(r, step.setting("delta"))
    return -minimum(bounded * step.advantages, clip(r, low, high) * step.advantages)


def _token(step: Step) -> tuple[Number, None]:
    return _clipped(step, exp(step.log_ratio)), None


def _sequence(step: Step) -> tuple[Number, None]:
    return _clipped(step, _sequence_mean(step, step.log_ratio)), None


def _sequence_token(step: Step) -> tuple[Number, None]:
    alive = exp(step.policy - step.policy.detached())
    return _clipped(step, _sequence_mean(step, step.log_ratio).detached() * alive), None


def _product(step: Step) -> tuple[Number, None]:
    r = exp(step.log_ratio.sum(1, keepdims=True))
    if step.settings.get("epsilon_low") is not None:
        return _clipped(step, r), None
    return -(r * step.advantages), None


def _cispo(step: Step) -> tuple[Number, None]:
    width = step.setting("epsilon_high")
    cap = 1.0 + width if step.settings["cispo_bound"] == "relative" else width
    return -(minimum(exp(step.log_ratio), cap).detached() * step.advantages * step.policy), None


def _sapo(step: Step) -> tuple[Number, Number]:
    up, down = step.setting("sapo_temperature_positive"), step.setting("sapo_temperature_negative")
    r = exp(step.log_ratio)
    tau = where(step.advantages.value > 0.0, up, down)
    gate = sigmoid(tau * (r - 1.0))
    return -(gate * (4.0 / tau) * step.advantages), -(4.0 * gate * (1.0 - gate) * r * step.advantages)


def _gmpo(step: Step) -> tuple[Number, None]:
    low, high = step.setting("epsilon_low"), step.setting("epsilon_high")
    q = where(step.advantages.value > 0.0, minimum(step.log_ratio, high), maximum(step.log_ratio, -low))
    return -(_sequence_mean(step, where(step.counts, q, 0.0)) * step.advantages), None


SURROGATES: dict[str, Callable[[Step], tuple[Number, Number | None]]] = {
    **dict.fromkeys(("grpo", "dapo", "bnpo-trl", "dr_grpo"), _token),
    **dict.fromkeys(("gspo", "luspo"), _sequence),
    "gspo-token": _sequence_token,
    "rloo": _product,
    "cispo": _cispo,
    "sapo": _sapo,
    "gmpo": _gmpo,
}


def _kl(step: Step, reference: Number) -> tuple[Number, Number | None]:
    """Return the estimate times its ratio, and its slope by hand where that rounds otherwise."""
    d = reference - step.policy
    estimator, level, limit = step.settings["kl_estimator"], step.settings["kl_ratio"], step.settings.get("kl_clamp")
    estimate = {"k1": lambda: -d, "k2": lambda: d * d * 0.5, "k3": lambda: exp(d) - d - 1.0}[estimator]()
    if limit is not None:
        estimate = clip(estimate, -float(limit), float(limit))
    if level == "none":
        slope = -expm1(d) if estimator == "k3" and limit is None else None
        return estimate, slope
    if level == "token":
        r = exp(step.log_ratio)
        return r * estimate, -(r * d) if estimator == "k3" and limit is None else None
    return _sequence_mean(step, step.log_ratio) * estimate, None


# --- the mean: of the terms (B, T), which are 0 where no token stands


def _blocks(step: Step) -> list[int] | None:
    """Return the rows of each block whose tokens are averaged alone: the step, prompts or micro-batches."""
    inputs, rows = step.settings, len(step.counts)
    if inputs["algorithm"] == "bnpo-trl":
        return list(inputs["micro_batches"])
    if inputs["algorithm"] in {"dapo", "cispo"} and inputs["dapo_denominator"] != "trl":
        size = int(inputs["group_size"]) if inputs["dapo_denominator"] == "group" else rows
        return [size] * (rows // size)
    return None


def _mean(term: Number, step: Step) -> Number:
    """Return one sum of divided terms; micro-batches of a split step are added one after the other.

    A program that divides its sums instead rounds less often, in the same orders.
    """
    divided = term * _row_weights(step)
    parts = step.settings.get("parts")
    if parts is None:
        return divided.sum()
    total, start = constant(0.0, term.dtype), 0
    for size in parts:
        total, start = total + divided[start : start + size].sum(), start + size
    return total


def _row_weights(step: Step) -> Number:
    """Return what a token of each row weighs, (B, 1): a quotient or two."""
    inputs, rows, dtype = step.settings, len(step.counts), step.policy.dtype
    blocks = _blocks(step)
    if blocks is not None:
        ends = np.cumsum(blocks)
        tokens = [max(float(step.counts[end - size : end].sum()), 1.0) for end, size in zip(ends, blocks, strict=True)]
        denominators = np.repeat(tokens, blocks)[:, None] * len(blocks)
    elif inputs["algorithm"] in {"dapo", "cispo"}:
        denominators = np.full((rows, 1), float(inputs["tokens_in_step"]))
    elif inputs["algorithm"] == "dr_grpo":
        denominators = np.full((rows, 1), float(rows * inputs["max_length"]))
    elif inputs["algorithm"] == "luspo":
        denominators = np.full((rows, 1), float(rows))
    else:
        denominators = step.tokens * rows
    return Number(1.0 / denominators, dtype, 2.0 * UNIT[dtype] / denominators)
