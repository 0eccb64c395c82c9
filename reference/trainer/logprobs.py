"""Log-probs of completion tokens from one full forward pass, differentiable."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer import precise


class Slots(NamedTuple):
    """For completion token t of row i: the token's position, the position whose logits score it, and the mask; all (B, T)."""

    target: mx.array
    source: mx.array
    mask: mx.array


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts and completions in right-padded rows.

    `ids` is (B, L) int32, `prompt_lengths` and `lengths` are (B,), `width` is T, the number of completion slots.
    """

    ids: mx.array
    prompt_lengths: NDArray[np.int64]
    lengths: NDArray[np.int64]
    width: int


def pack(prompts: Sequence[NDArray[np.int32]], tokens: NDArray[np.int32], lengths: NDArray[np.int64]) -> Batch:
    """A batch of one prompt for each row and tokens (R, T), of which the first `lengths` (R,) count; padding is id 0."""
    prompt_lengths = np.array([len(prompt) for prompt in prompts], np.int64)
    lengths = np.asarray(lengths, np.int64)
    ids = np.zeros((len(prompts), int((prompt_lengths + lengths).max())), np.int32)
    for row, prompt in enumerate(prompts):
        end = len(prompt) + lengths[row]
        ids[row, : len(prompt)] = prompt
        ids[row, len(prompt) : end] = tokens[row, : lengths[row]]
    return Batch(mx.array(ids), prompt_lengths, lengths, tokens.shape[1])


def completion_slots(prompt_lengths: NDArray[np.int64], lengths: NDArray[np.int64], width: int) -> Slots:
    """Where completion tokens stand and what scores them: the logits at position p score the token at p + 1.

    Slots past a row's length point at position 0 and are masked.
    """
    steps = np.arange(width)[None, :]
    mask = steps < np.asarray(lengths)[:, None]
    target = np.where(mask, np.asarray(prompt_lengths)[:, None] + steps, 0)
    source = np.where(mask, target - 1, 0)
    return Slots(mx.array(target.astype(np.int32)), mx.array(source.astype(np.int32)), mx.array(mask))


def token_logprobs(logits: mx.array, ids: mx.array, temperature: float) -> mx.array:
    """`x[id]/tau - logsumexp(x/tau)` over the last axis of logits (..., V) for ids (...), the maximum subtracted."""
    top = mx.stop_gradient(logits.max(axis=-1, keepdims=True))
    shifted = (logits - top) / temperature
    chosen = mx.take_along_axis(shifted, ids[..., None], axis=-1)[..., 0]
    return chosen - mx.log(precise.tree_sum(mx.exp(shifted)))


def completion_logits(logits: mx.array, slots: Slots) -> mx.array:
    """The logits (B, T, V) that score the completion; zeros in masked slots, whose gradient is zero too."""
    rows = mx.arange(logits.shape[0])[:, None]
    return mx.where(slots.mask[..., None], logits[rows, slots.source], mx.zeros((), logits.dtype))


def from_logits(logits: mx.array, batch: Batch, temperature: float) -> tuple[mx.array, mx.array]:
    """Completion log-probs (B, T), 0 in masked slots, and the mask (B, T), from the logits (B, L, V) of a batch.

    Raises:
        ValueError: the temperature is not positive, or a prompt is empty (nothing would score its first completion token).
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, must be > 0 to score tokens")
    if (batch.prompt_lengths < 1).any():
        raise ValueError(f"prompt_lengths is {batch.prompt_lengths.tolist()}, every prompt must have a token")
    slots = completion_slots(batch.prompt_lengths, batch.lengths, batch.width)
    scored = completion_logits(logits, slots).astype(mx.float32)
    ids = mx.where(slots.mask, mx.take_along_axis(batch.ids, slots.target, axis=1), 0)
    values = token_logprobs(scored, ids, temperature)
    return mx.where(slots.mask, values, 0.0), slots.mask


def of_model(model: Any, batch: Batch, temperature: float) -> tuple[mx.array, mx.array]:
    """Completion log-probs (B, T) and the mask (B, T) by one full forward pass of the model, without a cache."""
    return from_logits(model(batch.ids), batch, temperature)
