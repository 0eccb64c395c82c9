"""Mistakes in rewards and advantages: columns, weights, filters of groups, penalties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation
from gates_reference.trainer.algorithms import dapo


@mutation
def columns_tiled(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Repeat the list of rows as a whole instead of each row for its samples."""
    own, samples = arguments
    rows = list({sample.group: sample.row for sample in samples}.values())
    tiled = [replace(sample, row=rows[n % len(rows)]) for n, sample in enumerate(samples)]
    return original(own, tiled, **keywords)


@mutation
def weights_by_sorted_name(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Sort the weights by the functions' names, but not their columns."""
    rewards = original(*arguments, **keywords)
    by_name = sorted(arguments[0], key=lambda function: function.name)
    return replace(rewards, weights=np.array([function.weight for function in by_name], np.float64))


@mutation
def dynamic_sampling_by_total(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Keep the groups whose total differs where the accuracy should decide."""
    algorithm, rewards = arguments
    if algorithm.settings.dynamic_sampling == "accuracy":
        return dapo.differs(rewards.total(), rewards.group_size)
    return original(*arguments, **keywords)


@mutation
def overlong_after_limit(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Start the over-long penalty at the limit instead of one buffer before it."""
    lengths, limit, buffer = arguments
    return original(lengths, limit + buffer, buffer, **keywords)


@mutation
def kl_in_reward_mean(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Average the KL in the reward over a completion's tokens instead of summing it."""
    mask = np.asarray(arguments[2])
    return original(*arguments, **keywords) / np.maximum(mask.sum(axis=1), 1)
