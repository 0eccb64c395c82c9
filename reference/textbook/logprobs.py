"""Log-probs, entropies and their gradients as authors write them, in the dtype of the logits.

Half logits are computed in float32. A token that cannot be drawn (−∞) has weight 0. The largest logit is subtracted before
exponentials, as every library does; forms without it belong to inputs that ask about overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference.textbook.number import Bools, Floats, Number, constant, exp, gradient, log, number, where, widest

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows that are read.

    Attributes:
        x: (n, V) logits, 0 where a token cannot be drawn.
        possible: (n, V), false there.
        tokens: (n, K), 0 where one is ignored.
        counts: (n, K), false there.
        read: (…), true where a row is read.
    """

    x: Number
    possible: Bools
    tokens: Ints
    counts: Bools
    read: Bools


@dataclass(frozen=True, slots=True, eq=False)
class LogSoftmax:
    """One way of writing it: log p (n, V) and p (n, V), the shifted logits z with log Σ exp z, and the logits x/τ."""

    logps: Number
    p: Number
    z: Number
    log_sum: Number
    scaled: Number
    log_sum_exp: Number


def selective_log_softmax(
    logits: npt.ArrayLike, ids: npt.ArrayLike, *, temperature: float, ignore_index: int | None = None
) -> Mapping[str, Floats]:
    """Return the limits of `logprobs`, in the shape of the ids."""
    rows = _rows(logits, ids, ignore_index)
    forms = [_at(form.logps, rows.tokens) for form in _log_softmax(rows, temperature)]
    return {"logprobs": _of_tokens(rows, widest(forms), np.shape(ids))}


def entropy(
    logits: npt.ArrayLike,
    *,
    temperature: float,
    ids: npt.ArrayLike | None = None,
    ignore_index: int | None = None,
) -> Mapping[str, Floats]:
    """Return the limits of `entropy` (…), and of `logprobs` where ids are given."""
    rows = _rows(logits, np.zeros(np.shape(logits)[:-1], np.int64) if ids is None else ids, ignore_index)
    limits = np.zeros(rows.read.shape)
    limits[rows.read] = widest([h for form in _log_softmax(rows, temperature) for h in _entropies(form)])
    if ids is None:
        return {"entropy": limits}
    return {
        "entropy": limits,
        **selective_log_softmax(logits, ids, temperature=temperature, ignore_index=ignore_index),
    }


def selective_log_softmax_backward(
    logits: npt.ArrayLike,
    ids: npt.ArrayLike,
    grad_logprobs: npt.ArrayLike,
    *,
    temperature: float,
    grad_entropy: npt.ArrayLike | None,
    ignore_index: int | None = None,
) -> Mapping[str, Floats]:
    """Return the limits of `gradient` (…, V): by autograd through each form, and by the formula of the gradient."""
    rows = _rows(logits, ids, ignore_index)
    if not rows.read.any():
        return {"gradient": np.zeros(np.shape(logits))}
    shape, dtype = (*rows.read.shape, -1), rows.x.dtype
    of_tokens = np.asarray(grad_logprobs, np.float64).reshape(shape)[rows.read]
    g = number(np.where(rows.counts, of_tokens, 0.0), dtype)
    g_entropy = None if grad_entropy is None else number(np.asarray(grad_entropy, np.float64)[rows.read], dtype)
    forms = [*_differentiated(rows, temperature, g, g_entropy), *_analytic(rows, temperature, g, g_entropy)]
    limits = np.zeros(np.shape(logits))
    limits[rows.read] = widest(forms)
    return {"gradient": limits}


def _rows(logits: npt.ArrayLike, ids: npt.ArrayLike, ignore_index: int | None) -> Rows:
    values, found = np.asarray(logits), np.asarray(ids)
    each = found.reshape(*values.shape[:-1], -1)
    counts = np.ones(each.shape, bool) if ignore_index is None else each != ignore_index
    read = np.asarray(counts.any(axis=-1))
    x = values[read].reshape(-1, values.shape[-1])
    possible = x > -np.inf
    kept = number(np.where(possible, x, 0.0), "float64" if values.dtype == np.float64 else "float32")
    return Rows(kept, possible, np.where(counts, each, 0)[read], counts[read], read)


def _log_softmax(rows: Rows, temperature: float) -> Iterator[LogSoftmax]:
    """Yield the usual forms: divide then shift, shift then divide, log-sum-exp, and the logarithm of the softmax.

    The shift m is a constant: whatever number it is, the result does not depend on it.
    """
    x, dtype = rows.x, rows.x.dtype
    scaled = x if temperature == 1.0 else x / temperature
    m = _largest(scaled, rows)
    z = scaled - m
    for shifted in (z, (x - _largest(x, rows)) / temperature):
        weights = where(rows.possible, exp(shifted), constant(0.0, dtype))
        total = weights.sum(axis=-1, keepdims=True)
        log_sum = log(total)
        logps = _impossible(shifted - log_sum, rows)
        yield LogSoftmax(logps, weights / total, shifted, log_sum, scaled, log_sum + m)
        if temperature == 1.0:
            break
    weights = where(rows.possible, exp(z), constant(0.0, dtype))
    total = weights.sum(axis=-1, keepdims=True)
    log_sum_exp = log(total) + m
    logps = _impossible(scaled - log_sum_exp, rows)
    yield LogSoftmax(logps, where(rows.possible, exp(logps), constant(0.0, dtype)), z, log(total), scaled, log_sum_exp)
    p = weights / total
    logarithm = _impossible(log(where(rows.possible & (p.value > 0.0), p, constant(1.0, dtype))), rows)
    logarithm.void = logarithm.void | (rows.possible & (p.value <= 0.0))
    yield LogSoftmax(logarithm, p, z, log(total), scaled, log_sum_exp)


def _entropies(form: LogSoftmax) -> Iterator[Number]:
    """Yield −Σ p log p and log Σ exp − Σ p x, with and without the shift."""
    yield -(form.p * form.logps).sum(axis=-1)
    yield form.log_sum[:, 0] - (form.p * form.z).sum(axis=-1)
    yield form.log_sum_exp[:, 0] - (form.p * form.scaled).sum(axis=-1)


def _differentiated(rows: Rows, temperature: float, g: Number, g_entropy: Number | None) -> Iterator[Number]:
    """Differentiate each form as autograd does, each with another form of the entropy."""
    for index, form in enumerate(_log_softmax(rows, temperature)):
        loss = (g * _at(form.logps, rows.tokens)).sum()
        if g_entropy is not None:
            h = list(_entropies(form))[index % 3]
            loss = loss + (g_entropy * h).sum()
        yield gradient(loss, rows.x)[0]


def _analytic(rows: Rows, temperature: float, g: Number, g_entropy: Number | None) -> Iterator[Number]:
    """(Σ g (onehot − p) − g_H p (log p + H)) / τ, with p the softmax or the exponential of log p."""
    form = next(_log_softmax(rows, temperature))
    nothing = constant(0.0, form.p.dtype)
    for p in (form.p, where(rows.possible, exp(form.logps), nothing)):
        found = sum((g[:, k : k + 1] * (_onehot(rows, k) - p) for k in range(g.shape[1])), nothing)
        if g_entropy is not None:
            h = -(p * form.logps).sum(axis=-1, keepdims=True)
            found = found - g_entropy.reshape(-1, 1) * p * (form.logps + h)
        yield where(rows.possible | _chosen(rows), found / temperature, nothing)


def _largest(x: Number, rows: Rows) -> Floats:
    return np.asarray(np.max(np.where(rows.possible, x.value, -np.inf), axis=-1, keepdims=True))


def _impossible(logps: Number, rows: Rows) -> Number:
    """Put 0 for the log-prob of a token that cannot be drawn: its limit is 0, and p log p adds nothing."""
    return where(rows.possible, logps, constant(0.0, logps.dtype))


def _at(values: Number, tokens: Ints) -> Number:
    return values[np.arange(len(tokens))[:, None], tokens]


def _onehot(rows: Rows, k: int) -> Number:
    return number(np.asarray(np.arange(rows.x.shape[-1]) == rows.tokens[:, k, None], np.float64), rows.x.dtype)


def _chosen(rows: Rows) -> Bools:
    return np.asarray((np.arange(rows.x.shape[-1]) == rows.tokens[..., None]).any(axis=-2))


def _of_tokens(rows: Rows, limits: Floats, shape: tuple[int, ...]) -> Floats:
    """Return limits (n, K) in the shape of the ids, 0 where one is ignored."""
    result = np.zeros((*rows.read.shape, rows.tokens.shape[-1]))
    result[rows.read] = np.where(rows.counts, limits, 0.0)
    return result.reshape(shape)
