"""Mutations of the scoring of completions; loaded in workers only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from gates.families.patching import Fn, mutation
from gates_reference.trainer import heads, logprobs


@mutation
def shared_prompt_length(original: Fn, model: Any, batch: Any, *rest: Any, **options: Any) -> Any:
    """Read every completion from the end of the batch's shortest prompt."""
    shortest = np.full_like(batch.prompt_lengths, batch.prompt_lengths.min())
    return original(model, replace(batch, prompt_lengths=shortest), *rest, **options)


@mutation
def without_last_norm(_original: Fn, model: Any, ids: Any) -> Any:
    """Pass the last block's output to the head without the final norm."""
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


@mutation
def column_by_column(original: Fn, values: Any, mask: Any) -> Any:
    """Fill the table column by column."""
    return mx.where(mask, original(values, mask.T).T, 0.0)


@mutation
def untempered_entropy(original: Fn, logits: Any, temperature: Any) -> Any:
    """Ignore the temperature."""
    return original(logits, temperature / temperature)


@mutation
def without_upcast(_original: Fn, model: Any, states: Any, ids: Any, temperature: float, *, entropy: bool) -> Any:
    """Compute the log-softmax in the dtype of the logits."""
    logits = heads.logits(model, states[None])[0]
    values = logprobs.token_logprobs(logits, ids, temperature)
    found = values, logprobs.token_entropy(logits, temperature) if entropy else values
    return tuple(x.astype(mx.float32) for x in found)
