"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def multiply_by_mask(_original: Fn, values: Any, mask: Any) -> Any:
    """Mask by multiplication: NaN · 0 is NaN."""
    with np.errstate(invalid="ignore"):
        return values * mask


@mutation
def padded_length(original: Fn, mask: Any, max_length: int) -> Any:
    """Divide Dr. GRPO by the longest completion of the batch instead of the configured L_max."""
    del max_length
    return original(mask, mask.shape[1])


@mutation
def constant_ratio(original: Fn, policy: Any, old: Any, *rest: Any) -> Any:
    """Recompute `old` from the policy of this very step, so that every ratio is 1."""
    del old
    return original(policy, policy, *rest)


def as_algorithm(name: str) -> Callable[[Fn], Fn]:
    """Compute another algorithm's loss than the one that was asked for."""

    def patch(original: Fn) -> Fn:
        def mistaken(**inputs: Any) -> Any:
            return original(**{**inputs, "algorithm": name})

        return mistaken

    return patch


per_row_mean = as_algorithm("grpo")


@mutation
def one_micro_batch(original: Fn, **inputs: Any) -> Any:
    """Average over the whole batch where TRL's bnpo averages each micro-batch."""
    return original(**{**inputs, "micro_batches": [inputs["policy"].shape[0]]})


@mutation
def inert_clip(original: Fn, **inputs: Any) -> Any:
    """Clip with bounds that never act."""
    return original(**{**inputs, "epsilon_low": 0.99, "epsilon_high": 1e6})
