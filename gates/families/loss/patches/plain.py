"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


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
