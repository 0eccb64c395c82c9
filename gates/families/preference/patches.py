"""Mutations of the NumPy baseline's preference losses; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def swapped_sides(original: Fn, rows: Any) -> Any:
    """Take the second of a pair for the chosen one."""
    return original(rows)[::-1]


@mutation
def without_smoothing(original: Fn, x: Any, beta: Any, smoothing: Any) -> Any:
    """Take every label at its word."""
    return original(x, beta, smoothing * 0.0)


@mutation
def mean_for_sum(original: Fn, high: Any, *low: Any) -> Any:
    """Divide a sum by its terms."""
    return original(high, *low) / np.maximum(np.count_nonzero(high, axis=1), 1)


@mutation
def beta_outside(original: Fn, x: Any, beta: float, smoothing: float) -> Any:
    """Multiply the loss by β, not the margin."""
    value, slope = original(x, 1.0, smoothing)
    return beta * value, beta * slope


@mutation
def prompt_counts(original: Fn, mask: Any) -> Any:
    """Count everything up to the last completion token."""
    return np.flip(np.maximum.accumulate(np.flip(original(mask), axis=1), axis=1), axis=1)


@mutation
def without_last_column(original: Fn, mask: Any) -> Any:
    """Count nothing in the last column."""
    return original(mask) & (np.arange(mask.shape[1]) < mask.shape[1] - 1)


@mutation
def without_first_column(original: Fn, mask: Any) -> Any:
    """Count nothing in the first column."""
    return original(mask) & (np.arange(mask.shape[1]) > 0)


@mutation
def own_reference(original: Fn, policy: Any, reference: Any, valid: Any) -> Any:
    """Compare the policy with itself where there is no reference."""
    return policy if reference is None else original(policy, reference, valid)


@mutation
def doubled_target(original: Fn, beta: Any) -> Any:
    """Aim twice as far."""
    return 2.0 * original(beta)


@mutation
def not_averaged(original: Fn, sums: Any, tokens: Any) -> Any:
    """Leave a sum a sum."""
    return original(sums, np.ones_like(tokens))


@mutation
def negated_ratios(original: Fn, ratios: Any) -> Any:
    """Measure by how much the policy is ahead."""
    return original(-ratios)


@mutation
def scaled_margin(original: Fn, z: Any, constants: Any) -> Any:
    """Scale γ by β."""
    return original(z, {**constants, "margin": constants["margin"] * constants["beta"]})


@mutation
def log_probabilities(_original: Fn, mean: Any) -> Any:
    """Leave the odds' denominator out."""
    return (mean, np.ones_like(mean))


@mutation
def padding_too(original: Fn, policy: Any, attention_mask: Any) -> Any:
    """Count every slot."""
    return original(policy, np.ones_like(attention_mask))


@mutation
def row_mean_likelihood(_original: Fn, pairs: Any, weight: Any) -> Any:
    """Average each completion, then the pairs."""
    return (-weight * pairs.means[:, 0], -weight / np.maximum(pairs.tokens[:, 0], 1))


@mutation
def unclamped_anchor(_original: Fn, mismatched: Any) -> Any:
    """Let z0 fall below 0."""
    return float(np.mean(mismatched))


@mutation
def second_on_ties(_original: Fn, first: Any, second: Any) -> Any:
    """Prefer the first only where it is better."""
    return first > second


@mutation
def nan_wins(_original: Fn, groups: Any) -> Any:
    """Take argmax's word for a NaN."""
    return np.argmax(groups, axis=1)


@mutation
def last_of_equals(original: Fn, groups: Any) -> Any:
    """Search from the end."""
    return groups.shape[1] - 1 - original(groups[:, ::-1])


@mutation
def mean_of_nothing(_original: Fn, sums: Any, tokens: Any) -> Any:
    """Divide by the tokens, also where there are none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / tokens
