"""Mutations of the NumPy baseline's preference losses; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.edited import edited
from gates.families.patching import Fn, mutation
from gates.families.preference.kto import KTO
from gates.families.preference.program import PAIRS

swapped_sides = edited(PAIRS, "chosen and rejected swapped")
without_smoothing = edited(PAIRS, 'label smoothing ignored (as TRL loss_type="sigmoid" does)')
beta_outside = edited(PAIRS, "β outside the sigmoid: it multiplies the loss")
prompt_counts = edited(PAIRS, "the prompt counted")
doubled_target = edited(PAIRS, "target 1/β")
not_averaged = edited(PAIRS, "log-ratios summed over tokens")
negated_ratios = edited(PAIRS, "DPOP's penalty on the chosen completions that gained")
scaled_margin = edited(PAIRS, "the margin γ multiplied by β")
log_probabilities = edited(PAIRS, "probabilities compared, not odds: log π̄ without log(1 − π̄)")
row_mean_likelihood = edited(PAIRS, "likelihood: the mean over pairs of each chosen completion's mean −log π")
unclamped_anchor = edited(KTO, "z0 without max(0, ·)")


@mutation
def mean_for_sum(original: Fn, high: Any, *low: Any) -> Any:
    """Divide a sum by its number of terms."""
    return original(high, *low) / np.maximum(np.count_nonzero(high, axis=1), 1)


@mutation
def without_last_column(original: Fn, mask: Any) -> Any:
    """Leave out the last column."""
    return original(mask) & (np.arange(mask.shape[1]) < mask.shape[1] - 1)


@mutation
def without_first_column(original: Fn, mask: Any) -> Any:
    """Leave out the first column."""
    return original(mask) & (np.arange(mask.shape[1]) > 0)


@mutation
def own_reference(original: Fn, policy: Any, reference: Any, valid: Any) -> Any:
    """Use the policy as its own reference if there is none."""
    return policy if reference is None else original(policy, reference, valid)


@mutation
def padding_too(original: Fn, policy: Any, attention_mask: Any) -> Any:
    """Count every slot."""
    return original(policy, np.ones_like(attention_mask))


@mutation
def second_on_ties(_original: Fn, first: Any, second: Any) -> Any:
    """Prefer the first only if it is strictly better."""
    return first > second


@mutation
def nan_wins(_original: Fn, groups: Any) -> Any:
    """Use argmax, which selects a NaN."""
    return np.argmax(groups, axis=1)


@mutation
def last_of_equals(original: Fn, groups: Any) -> Any:
    """Search from the end."""
    return groups.shape[1] - 1 - original(groups[:, ::-1])


@mutation
def mean_of_nothing(_original: Fn, sums: Any, tokens: Any) -> Any:
    """Divide by the number of tokens even if it is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / tokens
