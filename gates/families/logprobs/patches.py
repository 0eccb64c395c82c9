"""Mutations of log-softmax, entropy and their gradient; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def untempered(original: Fn, row: Any, temperature: Any) -> Any:
    """Score at temperature 1 whatever the temperature is."""
    return original(row, temperature) * temperature


@mutation
def mean_offset(_original: Fn, row: Any) -> Any:
    """Subtract the mean of the finite logits, not the maximum: a peak overflows."""
    return row[np.isfinite(row)].mean()


@mutation
def no_offset(_original: Fn, *_: Any) -> Any:
    """Subtract nothing before the exponentials."""
    return 0.0


@mutation
def float32_running_sum(_original: Fn, shifted: Any) -> Any:
    """Add up the exponentials one after the other in float32."""
    sums = np.add.accumulate(np.exp(shifted).astype(np.float32))
    return float(np.log(np.float32(sums[-1])))


@mutation
def half_sum(_original: Fn, shifted: Any) -> Any:
    """Round every exponential to float16 before it is added."""
    return float(np.log(np.exp(shifted).astype(np.float16).astype(np.float64).sum()))


@mutation
def untempered_entropy(original: Fn, row: Any, shifted: Any, log_sum: float) -> Any:
    """Take the entropy of the distribution at temperature 1, beside log-probs at another."""
    del shifted, log_sum
    plain = row - row.max()
    return original(row, plain, float(np.log(np.exp(plain).sum())))


@mutation
def nan_entropy(_original: Fn, row: Any, shifted: Any, log_sum: float) -> Any:
    """Multiply p = 0 by log p = -inf."""
    del row
    with np.errstate(invalid="ignore"):
        logprobs = shifted - log_sum
        return float(-np.sum(np.exp(logprobs) * logprobs))


@mutation
def bits(original: Fn, *arguments: Any) -> Any:
    """Give the entropy in bits."""
    return original(*arguments) / np.log(2.0)


@mutation
def temperature_forgotten(original: Fn, logits: Any, *rest: Any, **options: Any) -> Any:
    """Leave out the 1/τ of the chain rule."""
    gradient = original(logits, *rest, **options).astype(np.float64) * options["temperature"]
    return gradient.astype(logits.dtype)


@mutation
def wrong_sign(original: Fn, probabilities: Any, token: Any, upstream: Any) -> Any:
    """Return g (p - onehot): the gradient of the loss -lp."""
    return original(probabilities, token, -upstream)


@mutation
def no_softmax(original: Fn, probabilities: Any, token: Any, upstream: Any) -> Any:
    """Return g onehot: the normaliser is taken for a constant."""
    return original(0.0 * probabilities, token, upstream)


@mutation
def entropy_ignored(original: Fn, logprobs: Any, upstream: Any) -> Any:
    """Send nothing back through the entropy."""
    return original(logprobs, 0.0 * upstream)


@mutation
def entropy_without_mean(_original: Fn, logprobs: Any, upstream: float) -> Any:
    """Return -g p (log p + 1): the derivative of p log p without that of the normaliser."""
    known = np.where(logprobs > -np.inf, logprobs, 0.0)
    return -upstream * np.exp(logprobs) * (known + 1.0)


@mutation
def divided_afterwards(original: Fn, logits: Any, ids: Any, *, temperature: float = 1.0, entropy: bool = False) -> Any:
    """Score at temperature 1 and divide what comes out."""
    if entropy:
        found, uncertainty = original(logits, ids, temperature=temperature, entropy=True)
        return original(logits, ids) / found.dtype.type(temperature), uncertainty
    found = original(logits, ids)
    return found / found.dtype.type(temperature)


@mutation
def every_id(_original: Fn, tokens: Any, _ignore_index: Any) -> Any:
    """Score every id, whatever is ignored: -100 counts from the end of the vocabulary."""
    return np.arange(len(tokens))


@mutation
def first_id(original: Fn, *arguments: Any) -> Any:
    """Score the first of the ids of a position only."""
    return original(*arguments)[:1]


@mutation
def time_first(original: Fn, *arrays: Any, **options: Any) -> Any:
    """Return the results of a (B, T, V) batch in the order of (T, B), under the shape of (B, T)."""
    found = original(*arrays, **options)
    if np.ndim(next(iter((*arrays, *options.values())))) != 3:
        return found
    parts = tuple(
        np.swapaxes(part, 0, 1).reshape(part.shape) for part in (found if isinstance(found, tuple) else (found,))
    )
    return parts if isinstance(found, tuple) else parts[0]
