"""Mistakes for the NumPy subject. Loaded in a worker only; each function takes the original and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def swap_group_and_batch(original: Fn) -> Fn:
    """Take the batch's deviation where the group's is asked for, and the other way round."""
    other = {"group": "batch", "batch": "group"}

    def mistaken(rewards: Any, scale: str, *rest: Any) -> Any:
        return original(rewards, other.get(scale, scale), *rest)

    return mistaken


def naive_mean(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Compute advantages as most code does: float mean and deviation of the dtype, no rule for constant groups."""

    def mistaken(rewards: Any, group_size: int, **choice: Any) -> Any:
        groups = rewards.reshape(-1, group_size)
        mean = np.add.accumulate(groups, axis=1)[:, -1:] / rewards.dtype.type(group_size)
        if choice["baseline"] == "leave-one-out":
            mean = (mean * group_size - groups) / rewards.dtype.type(group_size - 1)
        divisor: Any = 1.0
        if choice["scale"] == "group":
            spread = np.sqrt(((groups - mean) ** 2).sum(axis=1, keepdims=True) / max(1, group_size - choice["ddof"]))
            divisor = np.maximum(spread + choice["eps"], np.finfo(rewards.dtype).tiny)
        return ((groups - mean) / divisor).reshape(-1).astype(rewards.dtype)

    return mistaken


def unscored_is_zero(original: Fn) -> Fn:
    """Count a reward function that could not score as a score of 0."""

    def mistaken(rewards: Any, *rest: Any, **choice: Any) -> Any:
        return original(np.nan_to_num(rewards, nan=0.0), *rest, **choice)

    return mistaken


def expm1_minus_d(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Compute k3 as expm1(d) − d, which cancels for small d."""
    return lambda d: np.expm1(d) - d


def inverted(original: Fn) -> Fn:
    """Swap policy and reference in an estimator."""
    return lambda d: original(-d)


def swapped_arguments(original: Fn) -> Fn:
    """Swap policy and reference in the call."""

    def mistaken(policy: Any, reference: Any, **rest: Any) -> Any:
        return original(reference, policy, **rest)

    return mistaken


def without_half(original: Fn) -> Fn:
    """Forget the half of k2."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        return 2 * original(*arguments, **rest)

    return mistaken


def multiply_by_mask(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Mask by multiplication: NaN · 0 is NaN."""

    def mistaken(values: Any, mask: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return values * mask

    return mistaken


def padded_length(original: Fn) -> Fn:
    """Divide Dr. GRPO by the longest completion of the batch instead of the configured L_max."""

    def mistaken(mask: Any, max_length: int) -> Any:
        del max_length
        return original(mask, mask.shape[1])

    return mistaken


def constant_ratio(original: Fn) -> Fn:
    """Recompute `old` from the policy of this very step, so that every ratio is 1."""

    def mistaken(policy: Any, old: Any, *rest: Any) -> Any:
        del old
        return original(policy, policy, *rest)

    return mistaken


def as_algorithm(name: str) -> Callable[[Fn], Fn]:
    """Compute another algorithm's loss than the one that was asked for."""

    def patch(original: Fn) -> Fn:
        def mistaken(**inputs: Any) -> Any:
            return original(**{**inputs, "algorithm": name})

        return mistaken

    return patch


per_row_mean = as_algorithm("grpo")
"""Average every row by its own length, as GRPO does, where another aggregation was asked for."""


def one_micro_batch(original: Fn) -> Fn:
    """Average over the whole batch where TRL's bnpo averages each micro-batch."""

    def mistaken(**inputs: Any) -> Any:
        return original(**{**inputs, "micro_batches": [inputs["policy"].shape[0]]})

    return mistaken


def inert_clip(original: Fn) -> Fn:
    """Clip with bounds that never act."""

    def mistaken(**inputs: Any) -> Any:
        return original(**{**inputs, "epsilon_low": 0.99, "epsilon_high": 1e6})

    return mistaken


def clip_ddof(ddof: int) -> Callable[[Fn], Fn]:
    """Divide the squares by n - ddof whatever was asked for."""

    def patch(original: Fn) -> Fn:
        def mistaken(rewards: Any, scale: str, asked: Any, *rest: Any) -> Any:
            del asked
            return original(rewards, scale, ddof, *rest)

        return mistaken

    return patch


always_ddof_0 = clip_ddof(0)
"""NumPy's default deviation where torch's was asked for."""
always_ddof_1 = clip_ddof(1)
"""torch's default deviation where NumPy's was asked for."""


def always_add(original: Fn) -> Fn:
    """Add ε to the deviation in every mode."""

    def mistaken(rewards: Any, scale: str, ddof: Any, eps: Any, mode: Any) -> Any:
        return original(rewards, scale, ddof, eps, mode and "add")

    return mistaken


def always_scaled(original: Fn) -> Fn:
    """Divide by the deviation of the group although nothing should divide."""

    def mistaken(rewards: Any, scale: str, ddof: Any, eps: Any, mode: Any) -> Any:
        return (
            original(rewards, "group", 1, 1e-4, "add") if scale == "none" else original(rewards, scale, ddof, eps, mode)
        )

    return mistaken


def other_baseline(original: Fn) -> Fn:
    """Take the mean of all where that of the others was asked for."""

    def mistaken(*arguments: Any, **choice: Any) -> Any:
        return original(*arguments, **{**choice, "baseline": "mean"})

    return mistaken


def float32_sums(original: Fn) -> Fn:
    """Take means of float64 rewards in float32."""

    def mistaken(rewards: Any, *rest: Any, **choice: Any) -> Any:
        return original(rewards.astype(np.float32), *rest, **choice).astype(rewards.dtype)

    return mistaken


def swapped_levels(original: Fn) -> Fn:
    """Weight a token's estimate by its sequence's ratio, and the other way round."""
    other = {"token": "sequence", "sequence": "token"}

    def mistaken(*arguments: Any) -> Any:
        *rest, level = arguments
        return original(*rest, other[level])

    return mistaken


def inverted_ratio(original: Fn) -> Fn:
    """Weight by exp(old - policy)."""

    def mistaken(policy: Any, old: Any, *rest: Any) -> Any:
        return original(old, policy, *rest)

    return mistaken


def no_ratio(original: Fn) -> Fn:
    """Weight by 1 whatever was asked for."""
    return lambda *arguments: np.ones_like(original(*arguments))


def padded_mean(original: Fn) -> Fn:
    """Divide the log ratio of a sequence by the width of the batch, its padding included."""

    def mistaken(policy: Any, old: Any, valid: Any, *rest: Any) -> Any:
        return original(policy, old, np.ones_like(valid), *rest)

    return mistaken


def regrouped_by_stride(original: Fn) -> Fn:
    """Drop the rows that were not scored, and cut what is left into groups of the configured size."""

    def mistaken(rewards: Any, group_size: int, **choice: Any) -> Any:
        kept = ~np.isnan(rewards)
        found = np.zeros_like(rewards)
        missing = np.full(int((~kept).sum()), np.nan, rewards.dtype)
        found[kept] = original(np.concatenate([rewards[kept], missing]), group_size, **choice)[: int(kept.sum())]
        return found

    return mistaken
