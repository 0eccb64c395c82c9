"""Log-probs and entropies of completion tokens from one full forward pass, differentiable.

The head runs only where a token is scored: its logits are (N, V) for the N completion tokens of a batch, not (B, L, V).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer import checkpointing, double, heads


class Slots(NamedTuple):
    """For completion token t of row i: the token's position, the position whose logits score it, and the mask; all (B, T)."""

    target: mx.array
    source: mx.array
    mask: mx.array


class Scores(NamedTuple):
    """Completion log-probs (B, T) and, if asked for, entropies (B, T) in nats; both are 0 where the mask (B, T) is off.

    `head_calls` says in how many pieces the head ran.
    """

    values: mx.array
    mask: mx.array
    entropy: mx.array | None
    head_calls: int = 1


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
    return chosen - mx.log(double.tree_sum(mx.exp(shifted)))


def token_entropy(logits: mx.array, temperature: float) -> mx.array:
    """`-sum p log p` over the last axis of logits (..., V), p = softmax(x/tau): log Z - sum(e^s s)/Z, s = (x - max)/tau."""
    top = mx.stop_gradient(logits.max(axis=-1, keepdims=True))
    shifted = (logits - top) / temperature
    alive = shifted > -mx.inf  # a logit of -inf has no share, and 0 * inf is no number
    finite = mx.where(alive, shifted, 0.0)
    weights = mx.where(alive, mx.exp(finite), 0.0)
    total = double.tree_sum(weights)
    return mx.log(total) - double.tree_sum(weights * finite) / total


def completion_logits(logits: mx.array, slots: Slots) -> mx.array:
    """The logits (B, T, V) that score the completion; zeros in masked slots, whose gradient is zero too."""
    rows = mx.arange(logits.shape[0])[:, None]
    return mx.where(slots.mask[..., None], logits[rows, slots.source], mx.zeros((), logits.dtype))


def _slots(batch: Batch, temperature: float) -> Slots:
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, must be > 0 to score tokens")
    if (batch.prompt_lengths < 1).any():
        raise ValueError(f"prompt_lengths is {batch.prompt_lengths.tolist()}, every prompt must have a token")
    return completion_slots(batch.prompt_lengths, batch.lengths, batch.width)


def from_logits(logits: mx.array, batch: Batch, temperature: float) -> tuple[mx.array, mx.array]:
    """Completion log-probs (B, T), 0 in masked slots, and the mask (B, T), from the logits (B, L, V) of a batch.

    Raises:
        ValueError: the temperature is not positive, or a prompt is empty (nothing would score its first completion token).
    """
    slots = _slots(batch, temperature)
    scored = completion_logits(logits, slots).astype(mx.float32)
    ids = mx.where(slots.mask, mx.take_along_axis(batch.ids, slots.target, axis=1), 0)
    values = token_logprobs(scored, ids, temperature)
    return mx.where(slots.mask, values, 0.0), slots.mask


def in_table(values: mx.array, mask: mx.array) -> mx.array:
    """Values (N,) of the set slots, in the order of the rows, in their places of a table (B, T) that is 0 elsewhere."""
    order = mx.maximum(mx.cumsum(mask.reshape(-1).astype(mx.int32)).reshape(mask.shape) - 1, 0)
    return mx.where(mask, values[order], 0.0)


def _head_scores(
    model: Any, states: mx.array, ids: mx.array, temperature: float, *, entropy: bool
) -> tuple[mx.array, mx.array]:
    """Log-probs (N,) and entropies (N,) (log-probs again if not asked for) of ids (N,) from hidden states (N, D)."""
    logits = heads.logits(model, states[None])[0].astype(mx.float32)
    values = token_logprobs(logits, ids, temperature)
    return values, token_entropy(logits, temperature) if entropy else values


def _in_pieces(
    model: Any, states: mx.array, ids: mx.array, temperature: float, *, entropy: bool, rows: int
) -> tuple[mx.array, mx.array]:
    """As `_head_scores`, `rows` positions at a time, each piece's logits forgotten and computed again for the gradient."""

    def piece(part: Any, states: mx.array, ids: mx.array) -> tuple[mx.array, mx.array]:
        return _head_scores(part, states, mx.stop_gradient(ids), temperature, entropy=entropy)

    run, trainable = checkpointing.recomputed(model, piece), heads.parameters(model)
    starts = range(0, len(ids), rows)
    done = [run(trainable, states[start : start + rows], ids[start : start + rows]) for start in starts]
    values, entropies = (mx.concatenate(list(column)) for column in zip(*done, strict=True))
    return values, entropies


def scored(
    model: Any, batch: Batch, temperature: float, *, entropy: bool = False, head_rows: int | None = None
) -> Scores:
    """The scores of a batch's completion tokens by one full forward pass of the model, without a cache.

    With `head_rows` the logits are made in pieces of (head_rows, V), about three of which MLX holds at once
    (`memory.HEAD_PIECES`), at the cost of a second head in the backward pass: at V = 152k a thousand positions are 0.6 GB, and
    the gradient holds several copies.

    Raises:
        ValueError: the temperature is not positive, or a prompt is empty (nothing would score its first completion token).
    """
    slots = _slots(batch, temperature)
    row, step = np.nonzero(np.array(slots.mask))
    if not len(row):
        zeros = mx.zeros(slots.mask.shape)
        return Scores(zeros, slots.mask, zeros if entropy else None, 0)
    rows, steps = mx.array(row), mx.array(step)
    ids = batch.ids[rows, slots.target[rows, steps]]
    calls = -(-len(row) // head_rows) if head_rows else 1
    with heads.differentiable(model):
        states = heads.hidden(model, batch.ids)[rows, slots.source[rows, steps]]  # (N, D)
        if head_rows and calls > 1:
            found = _in_pieces(model, states, ids, temperature, entropy=entropy, rows=head_rows)
        else:
            found = _head_scores(model, states, ids, temperature, entropy=entropy)
    values, entropies = (in_table(x, slots.mask) for x in found)
    return Scores(values, slots.mask, entropies if entropy else None, calls)


def of_model(
    model: Any, batch: Batch, temperature: float, *, head_rows: int | None = None
) -> tuple[mx.array, mx.array]:
    """Completion log-probs (B, T) and the mask (B, T) by `scored`."""
    scores = scored(model, batch, temperature, head_rows=head_rows)
    return scores.values, scores.mask
