"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def advantage_of_the_first(original: Fn) -> Fn:
    """Give every row the advantage of the first of its four."""

    def mistaken(**inputs: Any) -> Any:
        advantages = inputs["advantages"]
        inputs["advantages"] = advantages[np.arange(len(advantages)) // 4 * 4]
        return original(**inputs)

    return mistaken


def discounted(original: Fn) -> Fn:
    """Let what stands in slot t count 0.99 to the t."""

    def mistaken(values: Any, mask: Any) -> Any:
        kept = original(values, mask)
        return kept * 0.99 ** np.arange(np.shape(kept)[-1]) if np.ndim(kept) == 2 else kept

    return mistaken


def summed_rows(original: Fn) -> Fn:
    """Multiply by the number of rows."""

    def mistaken(**inputs: Any) -> Any:
        loss, gradient = original(**inputs)
        rows = len(inputs["advantages"])
        return loss * rows, (gradient * rows).astype(gradient.dtype)

    return mistaken


def width_for_length(original: Fn) -> Fn:
    """Scale by the share of the slots that hold tokens."""

    def mistaken(**inputs: Any) -> Any:
        loss, gradient = original(**inputs)
        share = float(inputs["mask"].mean())
        return loss * share, (gradient * share).astype(gradient.dtype)

    return mistaken
