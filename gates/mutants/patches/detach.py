"""Mistakes that let a gradient, or a prompt, through. Loaded in a worker only; each returns the mistaken function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def live_old(original: Fn) -> Fn:
    """On-policy, leave the gradient to the KL alone."""

    def mistaken(**inputs: Any) -> Any:
        loss, gradient = original(**inputs)
        if inputs.get("old") is not None:
            return loss, gradient
        silent = original(**{**inputs, "advantages": np.zeros_like(inputs["advantages"])})
        return loss, silent[1]

    return mistaken


def last_prompt_token_too(original: Fn) -> Fn:
    """Read the logits one position early, where there is one."""
    import mlx.core as mx  # noqa: PLC0415  this file also serves a host without MLX

    def mistaken(*arguments: Any) -> Any:
        slots = original(*arguments)
        return slots._replace(source=mx.where(slots.mask, mx.maximum(slots.source - 1, 0), slots.source))

    return mistaken
