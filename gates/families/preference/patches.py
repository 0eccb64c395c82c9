"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def swapped_sides(original: Fn) -> Fn:
    """Take the second of a pair for the chosen one."""
    return lambda rows: original(rows)[::-1]


def without_smoothing(original: Fn) -> Fn:
    """Take every label at its word."""
    return lambda x, beta, smoothing: original(x, beta, smoothing * 0.0)


def mean_for_sum(original: Fn) -> Fn:
    """Divide a sum by its terms."""
    return lambda high, *low: original(high, *low) / np.maximum(np.count_nonzero(high, axis=1), 1)


def beta_outside(original: Fn) -> Fn:
    """Multiply the loss by β, not the margin."""

    def mistaken(x: Any, beta: float, smoothing: float) -> Any:
        value, slope = original(x, 1.0, smoothing)
        return beta * value, beta * slope

    return mistaken


def prompt_counts(original: Fn) -> Fn:
    """Count everything up to the last completion token."""
    return lambda mask: np.flip(np.maximum.accumulate(np.flip(original(mask), axis=1), axis=1), axis=1)


def without_last_column(original: Fn) -> Fn:
    """Count nothing in the last column."""
    return lambda mask: original(mask) & (np.arange(mask.shape[1]) < mask.shape[1] - 1)


def without_first_column(original: Fn) -> Fn:
    """Count nothing in the first column."""
    return lambda mask: original(mask) & (np.arange(mask.shape[1]) > 0)


def own_reference(original: Fn) -> Fn:
    """Compare the policy with itself where there is no reference."""
    return lambda policy, reference, valid: policy if reference is None else original(policy, reference, valid)


def doubled_target(original: Fn) -> Fn:
    """Aim twice as far."""
    return lambda beta: 2.0 * original(beta)


def not_averaged(original: Fn) -> Fn:
    """Leave a sum a sum."""
    return lambda sums, tokens: original(sums, np.ones_like(tokens))


def negated_ratios(original: Fn) -> Fn:
    """Measure by how much the policy is ahead."""
    return lambda ratios: original(-ratios)


def scaled_margin(original: Fn) -> Fn:
    """Scale γ by β."""
    return lambda z, constants: original(z, {**constants, "margin": constants["margin"] * constants["beta"]})


def log_probabilities(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Leave the odds' denominator out."""
    return lambda mean: (mean, np.ones_like(mean))


def row_mean_likelihood(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Average each completion, then the pairs."""
    return lambda pairs, weight: (-weight * pairs.means[:, 0], -weight / np.maximum(pairs.tokens[:, 0], 1))


def unclamped_anchor(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Let z0 fall below 0."""
    return lambda mismatched: float(np.mean(mismatched))


def second_on_ties(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Prefer the first only where it is better."""
    return lambda first, second: first > second


def nan_wins(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Take argmax's word for a NaN."""
    return lambda groups: np.argmax(groups, axis=1)


def last_of_equals(original: Fn) -> Fn:
    """Search from the end."""
    return lambda groups: groups.shape[1] - 1 - original(groups[:, ::-1])


def mean_of_nothing(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Divide by the tokens, also where there are none."""

    def mistaken(sums: Any, tokens: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums / tokens

    return mistaken
