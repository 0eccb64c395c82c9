"""Log-probs and entropies of completion tokens from one full forward pass, differentiable.

The head runs only at positions that score a token: its logits are (N, V) for the N completion tokens of a batch, not (B, L, V).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer import checkpointing, double, heads, lora
from gates_reference.trainer.adapters import dropout


class Slots(NamedTuple):
    """For completion token t of row i: its position, the position whose logits score it, and the mask; all (B, T)."""

    target: mx.array
    source: mx.array
    mask: mx.array


class Scores(NamedTuple):
    """Completion log-probs (B, T) and optionally entropies (B, T) in nats; both are 0 where the mask (B, T) is false.

    `head_calls` is the number of pieces in which the head ran.
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

    def mask(self) -> NDArray[np.bool_]:
        """Return which slots (B, T) hold a completion token."""
        return np.arange(self.width)[None, :] < self.lengths[:, None]


def pack(prompts: Sequence[NDArray[np.int32]], tokens: NDArray[np.int32], lengths: NDArray[np.int64]) -> Batch:
    """Make a batch of one prompt per row and tokens (R, T), of which the first `lengths` (R,) count; padding is id 0."""
    prompt_lengths = np.array([len(prompt) for prompt in prompts], np.int64)
    lengths = np.asarray(lengths, np.int64)
    ids = np.zeros((len(prompts), int((prompt_lengths + lengths).max())), np.int32)
    for row, prompt in enumerate(prompts):
        end = len(prompt) + lengths[row]
        ids[row, : len(prompt)] = prompt
        ids[row, len(prompt) : end] = tokens[row, : lengths[row]]
    return Batch(mx.array(ids), prompt_lengths, lengths, tokens.shape[1])


def completion_slots(prompt_lengths: NDArray[np.int64], lengths: NDArray[np.int64], width: int) -> Slots:
    """Return the positions of completion tokens and of the logits that score them: position p scores the token at p + 1.

    Slots past a row's length have position 0 and are masked.
    """
    steps = np.arange(width)[None, :]
    mask = steps < np.asarray(lengths)[:, None]
    target = np.where(mask, np.asarray(prompt_lengths)[:, None] + steps, 0)
    source = np.where(mask, target - 1, 0)
    return Slots(mx.array(target.astype(np.int32)), mx.array(source.astype(np.int32)), mx.array(mask))


def token_logprobs(logits: mx.array, ids: mx.array, temperature: float) -> mx.array:
    """Return `x[id]/tau - logsumexp(x/tau)` over the last axis of logits (..., V) for ids (...)."""
    top = mx.stop_gradient(logits.max(axis=-1, keepdims=True))
    shifted = (logits - top) / temperature
    chosen = mx.take_along_axis(shifted, ids[..., None], axis=-1)[..., 0]
    return chosen - mx.log(double.tree_sum(mx.exp(shifted)))


def token_entropy(logits: mx.array, temperature: float) -> mx.array:
    """Return `-sum p log p`, p = softmax(x/tau), over the last axis of logits (..., V): log Z - sum(e^s s)/Z, s = (x - max)/tau."""
    top = mx.stop_gradient(logits.max(axis=-1, keepdims=True))
    shifted = (logits - top) / temperature
    alive = shifted > -mx.inf  # a logit of -inf adds 0, but 0 * inf would be NaN
    finite = mx.where(alive, shifted, 0.0)
    weights = mx.where(alive, mx.exp(finite), 0.0)
    total = double.tree_sum(weights)
    return mx.log(total) - double.tree_sum(weights * finite) / total


def completion_logits(logits: mx.array, slots: Slots) -> mx.array:
    """Return the logits (B, T, V) that score the completion; masked slots are 0, with gradient 0."""
    rows = mx.arange(logits.shape[0])[:, None]
    return mx.where(slots.mask[..., None], logits[rows, slots.source], mx.zeros((), logits.dtype))


def _slots(batch: Batch, temperature: float) -> Slots:
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, must be > 0 to score tokens")
    if (batch.prompt_lengths < 1).any():
        raise ValueError(f"prompt_lengths is {batch.prompt_lengths.tolist()}, every prompt must have a token")
    return completion_slots(batch.prompt_lengths, batch.lengths, batch.width)


def from_logits(logits: mx.array, batch: Batch, temperature: float) -> tuple[mx.array, mx.array]:
    """Return completion log-probs (B, T), 0 in masked slots, and the mask (B, T), from the logits (B, L, V) of a batch.

    Raises:
        ValueError: the temperature is not positive, or a prompt is empty (nothing would score its first completion token).
    """
    slots = _slots(batch, temperature)
    scored = completion_logits(logits, slots).astype(mx.float32)
    ids = mx.where(slots.mask, mx.take_along_axis(batch.ids, slots.target, axis=1), 0)
    values = token_logprobs(scored, ids, temperature)
    return mx.where(slots.mask, values, 0.0), slots.mask


def in_table(values: mx.array, mask: mx.array) -> mx.array:
    """Put the values (N,) of the unmasked slots, in row order, into a table (B, T) that is 0 elsewhere."""
    order = mx.maximum(mx.cumsum(mask.reshape(-1).astype(mx.int32)).reshape(mask.shape) - 1, 0)
    return mx.where(mask, values[order], 0.0)


def _head_scores(
    model: Any, states: mx.array, ids: mx.array, temperature: float, *, entropy: bool
) -> tuple[mx.array, mx.array]:
    """Return log-probs (N,) and entropies (N,) of ids (N,) from hidden states (N, D); without `entropy`, log-probs twice."""
    logits = heads.logits(model, states[None])[0].astype(mx.float32)
    values = token_logprobs(logits, ids, temperature)
    return values, token_entropy(logits, temperature) if entropy else values


def _in_pieces(
    model: Any, states: mx.array, ids: mx.array, temperature: float, *, entropy: bool, rows: int
) -> tuple[mx.array, mx.array]:
    """Do `_head_scores` for `rows` positions at a time; the logits of each piece are computed again for the gradient."""

    def piece(start: int) -> tuple[mx.array, mx.array]:
        def scores(part: Any, states: mx.array, ids: mx.array) -> tuple[mx.array, mx.array]:
            with dropout.piece(part, start, total):
                return _head_scores(part, states, mx.stop_gradient(ids), temperature, entropy=entropy)

        end = start + rows
        values: tuple[mx.array, mx.array] = checkpointing.recomputed(model, scores)(
            trainable, states[start:end], ids[start:end]
        )
        return values

    total, trainable = len(ids), heads.parameters(model)
    done = [piece(start) for start in range(0, total, rows)]
    values, entropies = (mx.concatenate(list(column)) for column in zip(*done, strict=True))
    return values, entropies


def scored(
    model: Any, batch: Batch, temperature: float, *, entropy: bool = False, head_rows: int | None = None
) -> Scores:
    """Score a batch's completion tokens by one full forward pass of the model, without a cache.

    With `head_rows` the logits are computed in pieces of (head_rows, V), of which MLX holds about three at once
    (`memory.HEAD_PIECES`); the head runs a second time in the backward pass. At V = 152k a thousand positions are 0.6 GB, and the
    gradient holds several copies.

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
            scores = _in_pieces(model, states, ids, temperature, entropy=entropy, rows=head_rows)
        else:
            scores = _head_scores(model, states, ids, temperature, entropy=entropy)
    values, entropies = (in_table(x, slots.mask) for x in scores)
    return Scores(values, slots.mask, entropies if entropy else None, calls)


def of_model(
    model: Any, batch: Batch, temperature: float, *, head_rows: int | None = None
) -> tuple[mx.array, mx.array]:
    """Return completion log-probs (B, T) and the mask (B, T) from `scored`."""
    scores = scored(model, batch, temperature, head_rows=head_rows)
    return scores.values, scores.mask


def of_policy(model: Any, batch: Batch, temperature: float, *, head_rows: int | None = None) -> mx.array:
    """Return the log-probs (B, T) of the current model by a full forward pass, as a constant."""
    values, _ = of_model(model, batch, temperature, head_rows=head_rows)
    mx.eval(values)
    return mx.stop_gradient(values)


def of_reference(model: Any, batch: Batch, temperature: float, *, head_rows: int | None = None) -> mx.array:
    """Return the log-probs (B, T) of the reference policy, the model with its adapters off, as a constant."""
    with lora.adapters_off(model):
        values, _ = of_model(model, batch, temperature, head_rows=head_rows)
        mx.eval(values)
    return mx.stop_gradient(values)
