"""Mistakes that let rows run on. Loaded in a worker only; each takes the original and returns the mistaken function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

Fn = Callable[..., Any]


def to_the_limit(original: Fn) -> Fn:
    """Step on to max_tokens after the last row has ended, and throw that away."""

    def mistaken(steps: Any, last: Any, request: Any, result: Any, chosen: Any) -> None:
        original(steps, last, request, result, chosen)
        done = int(np.max(result.lengths[chosen]))
        for _ in range(request.max_tokens - done if done == 1 else 0):
            mx.eval(steps.step(np.zeros(len(chosen), np.int32)))

    return mistaken
