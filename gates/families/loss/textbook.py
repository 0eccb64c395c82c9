"""Textbook limits of policy losses: the forward formula in numbers that bound their own rounding.

A KL is added to each token (TRL) or to the loss (verl). Gradients are those of autograd and, if they round differently,
hand-written ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gates.arithmetic.bounded import expm1
from gates.arithmetic.functions import exp, where
from gates.arithmetic.number import UNIT, Floats, Number, gradient, number, widest
from gates.families.loss.program import asked
from gates.families.loss.step import BY_ROW, Step
from gates.families.loss.terms import kl_mean, kl_term, surrogate, weighted
from gates.families.program import Data
from gates.families.rows import Grid

BY_TOKEN = ("old", "reference", "advantages", "weights")


def policy_loss(policy: npt.ArrayLike, **inputs: Any) -> dict[str, Floats]:
    """Return the limits of loss and gradient of a careful program in the dtype of `policy`.

    Args:
        policy: log-probs as in `gates_reference.oracle.losses.policy_loss`.
        **inputs: its other keywords.

    Returns:
        "loss" (), "gradient" of the shape of `policy`: float64 limits, inf where no claim can be made; "loss_value" and
        "gradient_value": the results of the forward formula.
    """
    grid = Grid.of({"policy": policy, **inputs}, "policy")
    losses, slopes = forms(grid, wide(grid, policy, number(policy).dtype), inputs)
    values = {"loss_value": losses[0].value, "gradient_value": grid.back(slopes[-1].value)}
    return {"loss": widest(losses), "gradient": grid.back(widest(slopes)), **values}


def policy_loss_in_parts(*, parts: Sequence[int], **inputs: Any) -> dict[str, Floats]:
    """Return the same limits for a step whose micro-batches are added up."""
    return policy_loss(**inputs, parts=parts)


def wide(grid: Grid, values: Any, dtype: str, *, by_row: bool = False) -> Number:
    """Return values of tokens or rows as (B, T), 0 outside tokens; see `Grid.wide`."""
    if isinstance(values, Number):
        filled: Number = where(grid.counts, grid.wide(values, by_row=by_row), 0.0)
        return filled
    return number(np.where(grid.counts, grid.wide(np.asarray(values, np.float64), by_row=by_row), 0.0), dtype)


def scalar(value: float, dtype: str) -> Number:
    """Return a constant such as ε, which a program may keep in the dtype or in a wider one."""
    return Number(float(value), dtype, UNIT[dtype] * abs(value))


def forms(grid: Grid, policy: Number, inputs: Mapping[str, Any]) -> tuple[list[Number], list[Number]]:
    """Return the forms of the loss and of the gradient, for a policy of shape (B, T).

    `advantages` of rows and `weights` of tokens may be numbers that carry their own errors.
    """
    arrays = {
        name: wide(grid, inputs[name], policy.dtype, by_row=name in BY_ROW)
        for name in BY_TOKEN
        if inputs.get(name) is not None
    }
    call = {**inputs, **arrays, "policy": policy.value, "mask": grid.counts, "lengths": None, "row_mask": None}
    step = Step(Data(call, bounded=True), {**asked(call), "sigmoid": "by side"}, policy)
    term, by_hand = where(step.counts, surrogate(step), 0.0), _slope(step)
    by_hand = None if by_hand is None else by_hand * step.row_weights()
    alone = step.mean(term)
    if not call["beta"]:
        slopes = [gradient(alone, policy)[0]]
        return [alone], slopes if by_hand is None else [*slopes, where(step.counts, by_hand, 0.0)]
    beta = step.scalar(call["beta"])
    estimate = where(step.counts, kl_term(step), 0.0)
    added = beta * step.mean(estimate, kl_mean(step))
    whole = step.mean(term + beta * estimate) if kl_mean(step) is None else alone + added
    slopes, of_kl = [gradient(whole, policy)[0]], _kl_slope(step)
    if by_hand is not None or of_kl is not None:
        first = gradient(alone, policy)[0] if by_hand is None else by_hand
        second = gradient(added, policy)[0] if of_kl is None else of_kl * beta * step.row_weights(kl_mean(step))
        slopes.append(where(step.counts, first + second, 0.0))
    return [whole, alone + added], slopes


def _slope(step: Step) -> Number | None:
    """Return the hand-written slope of a token's term, if it rounds differently from autograd's."""
    if step.chosen["bound"] != "gate":
        return None
    r, a = step.ratio(step.chosen["level"], step.log_ratio()), step.advantages()
    moves = step.tokens if step.chosen["level"] == "seq_sum" else 1.0  # a product has the slope of all its factors
    opened = step.gate(step.temperature(a) * (r - 1.0))
    slope: Number = weighted(step, -(4.0 * opened * (1.0 - opened) * r * a * moves))
    return slope


def _kl_slope(step: Step) -> Number | None:
    """Return the hand-written slope of a token's KL, if it rounds differently from autograd's."""
    chosen = step.chosen
    if chosen["estimator"] != "k3" or chosen["kl_clamp"] is not None or chosen["kl_ratio"] == "sequence":
        return None
    d = step.logprobs("reference") - step.lp
    return -expm1(d) if chosen["kl_ratio"] == "none" else -(exp(step.log_ratio()) * d)
