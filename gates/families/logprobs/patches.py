"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def untempered(original: Fn, row: Any, temperature: Any) -> Any:
    """Score at temperature 1 whatever the temperature is."""
    return original(row, temperature) * temperature


def mean_offset(original: Fn) -> Fn:
    """Subtract the mean of the finite logits, not the maximum: a peak overflows."""
    del original
    return lambda row: row[np.isfinite(row)].mean()


def no_offset(original: Fn) -> Fn:
    """Subtract nothing before the exponentials."""
    del original
    return lambda *_: 0.0


def float32_running_sum(original: Fn) -> Fn:
    """Add up the exponentials one after the other in float32."""
    del original

    def mistaken(shifted: Any) -> Any:
        sums = np.add.accumulate(np.exp(shifted).astype(np.float32))
        return float(np.log(np.float32(sums[-1])))

    return mistaken


def half_sum(original: Fn) -> Fn:
    """Round every exponential to float16 before it is added."""
    del original
    return lambda shifted: float(np.log(np.exp(shifted).astype(np.float16).astype(np.float64).sum()))


@mutation
def untempered_entropy(original: Fn, row: Any, shifted: Any, log_sum: float) -> Any:
    """Take the entropy of the distribution at temperature 1, beside log-probs at another."""
    del shifted, log_sum
    plain = row - row.max()
    return original(row, plain, float(np.log(np.exp(plain).sum())))


def nan_entropy(original: Fn) -> Fn:
    """Multiply p = 0 by log p = -inf."""
    del original

    def mistaken(row: Any, shifted: Any, log_sum: float) -> Any:
        del row
        with np.errstate(invalid="ignore"):
            logprobs = shifted - log_sum
            return float(-np.sum(np.exp(logprobs) * logprobs))

    return mistaken


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


def entropy_without_mean(original: Fn) -> Fn:
    """Return -g p (log p + 1): the derivative of p log p without that of the normaliser."""
    del original

    def mistaken(logprobs: Any, upstream: float) -> Any:
        known = np.where(logprobs > -np.inf, logprobs, 0.0)
        return -upstream * np.exp(logprobs) * (known + 1.0)

    return mistaken


@mutation
def divided_afterwards(original: Fn, logits: Any, ids: Any, *, temperature: float = 1.0, entropy: bool = False) -> Any:
    """Score at temperature 1 and divide what comes out."""
    if entropy:
        found, uncertainty = original(logits, ids, temperature=temperature, entropy=True)
        return original(logits, ids) / found.dtype.type(temperature), uncertainty
    found = original(logits, ids)
    return found / found.dtype.type(temperature)


def time_first(original: Fn) -> Fn:
    """Return the results of a (B, T, V) batch in the order of (T, B), under the shape of (B, T)."""

    def swapped(result: Any) -> Any:
        return np.swapaxes(result, 0, 1).reshape(result.shape)

    def mistaken(values: Any, *others: Any, **options: Any) -> Any:
        result = original(values, *others, **options)
        if np.ndim(values) != 3:
            return result
        return tuple(map(swapped, result)) if isinstance(result, tuple) else swapped(result)

    return mistaken
