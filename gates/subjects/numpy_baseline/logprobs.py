"""The NumPy baseline's sums over a vocabulary: log-probs and entropy of tokens, their gradient, and the full KL."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import arguments

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def selective_log_softmax(
    logits: Array,
    ids: Array,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    ignore_index: int | None = None,
) -> Array | tuple[Array, Array]:
    """Log-probs of the chosen tokens in nats, and with `entropy` the entropy of the scaled distribution.

    Float32 for logits of float16, bfloat16 and float32, else float64.
    """
    rows, tokens = _rows(logits, ids, ignore_index)
    dtype = np.float32 if np.asarray(logits).dtype.itemsize <= 4 else np.float64
    chosen, entropies = np.zeros(tokens.shape), np.zeros(len(rows))
    for index, (row, of_row) in enumerate(zip(rows, tokens, strict=True)):  # a row at a time: V may be 151,936
        slots = counted(of_row, ignore_index)
        if not len(slots):
            continue
        shifted = temperature_scaled(row, temperature)
        log_sum = log_sum_exp(shifted)
        chosen[index, slots] = shifted[of_row[slots]] - log_sum
        if entropy:
            entropies[index] = entropy_of(row, shifted, log_sum)
    logprobs = chosen.reshape(np.shape(ids)).astype(dtype)
    return (logprobs, entropies.reshape(np.shape(logits)[:-1]).astype(dtype)) if entropy else logprobs


def selective_log_softmax_backward(
    logits: Array,
    ids: Array,
    grad_logprobs: Array,
    *,
    temperature: float = 1.0,
    grad_entropy: Array | None = None,
    ignore_index: int | None = None,
) -> Array:
    """Gradient with respect to the logits, in their dtype, of a loss that reads log-probs and entropies."""
    rows, tokens = _rows(logits, ids, ignore_index)
    upstream = arguments.wide("grad_logprobs", grad_logprobs, np.shape(ids)).reshape(tokens.shape)
    shape = np.shape(logits)[:-1]
    of_entropy = None if grad_entropy is None else arguments.wide("grad_entropy", grad_entropy, shape).reshape(-1)
    gradient = np.zeros(rows.shape)
    for index, (row, of_row) in enumerate(zip(rows, tokens, strict=True)):
        slots = counted(of_row, ignore_index)
        if not len(slots):
            continue
        shifted = temperature_scaled(row, temperature)
        log_sum = log_sum_exp(shifted)
        for slot in slots:
            gradient[index] += chosen_slope(np.exp(shifted - log_sum), of_row[slot], upstream[index, slot])
        if of_entropy is not None:
            gradient[index] += entropy_slope(shifted - log_sum, of_entropy[index])
        gradient[index] /= temperature
    return arguments.narrow(gradient.reshape(np.shape(logits)), logits)


def full_kl(policy_logprobs: Array, reference_logprobs: Array) -> Array:
    """KL(policy || reference) over the whole vocabulary, in nats and the dtype of the data."""
    policy = arguments.vocabulary("policy_logprobs", policy_logprobs)
    reference = arguments.wide("reference_logprobs", reference_logprobs, policy.shape)
    sums = [
        row_divergence(p, q)
        for p, q in zip(policy.reshape(-1, policy.shape[-1]), reference.reshape(-1, policy.shape[-1]), strict=True)
    ]
    return arguments.narrow(np.array(sums, np.float64).reshape(policy.shape[:-1]), policy_logprobs)


def counted(tokens: Array, ignore_index: int | None) -> Array:
    """Return the slots of a row whose token is not ignored."""
    return np.arange(len(tokens)) if ignore_index is None else np.flatnonzero(tokens != ignore_index)


def temperature_scaled(row: Array, temperature: float) -> Array:
    """Return (x − max x) / temperature of one row."""
    return (row - row_offset(row)) / temperature


def row_offset(row: Array) -> Any:
    """Return the offset subtracted before exponentials to prevent overflow."""
    return row.max()


def log_sum_exp(shifted: Array) -> float:
    """Return log Σ exp of one row whose largest entry is 0."""
    return math.log(np.exp(shifted).sum())


def entropy_of(row: Array, shifted: Array, log_sum: float) -> float:
    """Return log Σ − Σ s exp(s) / Σ with s = shifted: no cancellation, since no s is above 0."""
    del row
    weights = np.exp(shifted)
    surprise = np.multiply(weights, shifted, out=np.zeros(shifted.shape), where=weights > 0.0)
    return float(log_sum - surprise.sum() / weights.sum())


def chosen_slope(probabilities: Array, token: int, upstream: float) -> Array:
    """Return g (onehot − p)."""
    slope = -upstream * probabilities
    slope[token] = upstream * (1.0 - probabilities[token])
    return slope


def entropy_slope(logprobs: Array, upstream: float) -> Array:
    """Return −g p (log p + H)."""
    probabilities = np.exp(logprobs)
    known = np.where(probabilities > 0.0, logprobs, 0.0)
    entropy = -np.sum(probabilities * known)
    return -upstream * probabilities * (known + entropy)


def row_divergence(policy: Array, reference: Array) -> float:
    """Return Σ p (log p − log q) of one row; a token of probability 0 adds nothing."""
    possible = policy > -np.inf
    left, right = policy[possible], reference[possible]
    if np.any(right == -np.inf):
        return math.inf
    return math.fsum((np.exp(left) * (left - right)).tolist())


def _rows(logits: Array, ids: Array, ignore_index: int | None) -> tuple[Array, Array]:
    """Return the logits (rows, V) and the tokens (rows, K), including ignored ones."""
    values = arguments.vocabulary("logits", logits)
    shape, size = values.shape[:-1], values.shape[-1]
    tokens = np.asarray(ids)
    if tokens.shape != shape and (tokens.ndim != values.ndim or tokens.shape[:-1] != shape):
        raise ValueError(f"`ids` has shape {tokens.shape}, must be {shape}, or that and the tokens of each position")
    rows = values.reshape(-1, size)
    tokens = tokens.reshape(len(rows), -1)
    ignored = np.zeros(tokens.shape, np.bool_) if ignore_index is None else tokens == ignore_index
    arguments.whole("ids", np.where(ignored, 0, tokens), 0, size)
    if not np.all(np.isfinite(rows.max(axis=-1)) | ignored.all(axis=-1)):
        raise ValueError("`logits` has a row whose maximum is not finite, must have a finite one and no NaN")
    return rows, tokens
