"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from reference.trainer import heads, logprobs

Fn = Callable[..., Any]


def shared_prompt_length(original: Fn) -> Fn:
    """Look for every completion where the shortest prompt of the batch ends."""

    def mistaken(model: Any, batch: Any, *rest: Any, **options: Any) -> Any:
        shortest = np.full_like(batch.prompt_lengths, batch.prompt_lengths.min())
        return original(model, replace(batch, prompt_lengths=shortest), *rest, **options)

    return mistaken


def without_last_norm(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Give the head what leaves the last block."""

    def mistaken(model: Any, ids: Any) -> Any:
        last, noted = model.layers[-1], []
        plain = type(last)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            noted.append(plain.__call__(self, *arguments, **options))
            return noted[-1]

        last.__class__ = type(plain.__name__, (plain,), {"__call__": call})
        try:
            model(ids)
        finally:
            last.__class__ = plain
        return noted[-1]

    return mistaken


def column_by_column(original: Fn) -> Fn:
    """Fill the table down its columns."""
    return lambda values, mask: mx.where(mask, original(values, mask.T).T, 0.0)


def untempered_entropy(original: Fn) -> Fn:
    """Forget the temperature."""
    return lambda logits, temperature: original(logits, temperature / temperature)


def without_upcast(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole function
    """Take the log-softmax in the dtype that the logits came in."""

    def mistaken(model: Any, states: Any, ids: Any, temperature: float, *, entropy: bool) -> Any:
        logits = heads.logits(model, states[None])[0]
        values = logprobs.token_logprobs(logits, ids, temperature)
        found = values, logprobs.token_entropy(logits, temperature) if entropy else values
        return tuple(x.astype(mx.float32) for x in found)

    return mistaken
