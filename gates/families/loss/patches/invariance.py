"""Mutations of the ways in which rows of a loss stay apart; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def advantage_of_the_first(original: Fn, **inputs: Any) -> Any:
    """Give every row the advantage of the first of its four."""
    advantages = inputs["advantages"]
    inputs["advantages"] = advantages[np.arange(len(advantages)) // 4 * 4]
    return original(**inputs)


@mutation
def discounted(original: Fn, values: Any, mask: Any) -> Any:
    """Let what stands in slot t count 0.99 to the t."""
    kept = original(values, mask)
    return kept * 0.99 ** np.arange(np.shape(kept)[-1]) if np.ndim(kept) == 2 else kept


@mutation
def summed_rows(original: Fn, **inputs: Any) -> Any:
    """Multiply by the number of rows."""
    loss, gradient = original(**inputs)
    rows = len(inputs["advantages"])
    return loss * rows, (gradient * rows).astype(gradient.dtype)


@mutation
def width_for_length(original: Fn, **inputs: Any) -> Any:
    """Scale by the share of the slots that hold tokens."""
    loss, gradient = original(**inputs)
    share = float(inputs["mask"].mean())
    return loss * share, (gradient * share).astype(gradient.dtype)
