"""Mutations of log-softmax, entropy and their gradient; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.edited import edited
from gates.families.logprobs import gradient
from gates.families.logprobs.program import PROGRAM
from gates.families.patching import Fn, mutation

untempered = edited(PROGRAM, "the temperature ignored: log-probs at τ = 1")
untempered_entropy = edited(PROGRAM, "the entropy of the untempered logits (τ = 1)")
bits = edited(PROGRAM, "the entropy in bits, to base 2")
temperature_forgotten = edited(gradient.PROGRAM, "the gradient by x/τ, not divided by τ")
no_softmax = edited(gradient.PROGRAM, "the gradient on the ids alone, without that of the normaliser")
entropy_ignored = edited(gradient.PROGRAM, "the entropy's part left out")
divided_afterwards = edited(PROGRAM, "the temperature after the softmax: log p / τ")


@mutation
def mean_offset(_original: Fn, row: Any) -> Any:
    """Subtract the mean of the finite logits instead of the maximum."""
    return row[np.isfinite(row)].mean()


@mutation
def no_offset(_original: Fn, *_: Any) -> Any:
    """Subtract nothing before the exponentials."""
    return 0.0


@mutation
def float32_running_sum(_original: Fn, shifted: Any) -> Any:
    """Sum the exponentials sequentially in float32."""
    sums = np.add.accumulate(np.exp(shifted).astype(np.float32))
    return float(np.log(np.float32(sums[-1])))


@mutation
def half_sum(_original: Fn, shifted: Any) -> Any:
    """Round every exponential to float16 before it is added."""
    return float(np.log(np.exp(shifted).astype(np.float16).astype(np.float64).sum()))


@mutation
def nan_entropy(_original: Fn, row: Any, shifted: Any, log_sum: float) -> Any:
    """Multiply p = 0 by log p = -inf."""
    del row
    with np.errstate(invalid="ignore"):
        logprobs = shifted - log_sum
        return float(-np.sum(np.exp(logprobs) * logprobs))


@mutation
def wrong_sign(original: Fn, probabilities: Any, token: Any, upstream: Any) -> Any:
    """Return g (p - onehot): the gradient of the loss -lp."""
    return original(probabilities, token, -upstream)


@mutation
def entropy_without_mean(_original: Fn, logprobs: Any, upstream: float) -> Any:
    """Return -g p (log p + 1): the derivative of p log p without that of the normaliser."""
    known = np.where(logprobs > -np.inf, logprobs, 0.0)
    return -upstream * np.exp(logprobs) * (known + 1.0)


@mutation
def every_id(_original: Fn, tokens: Any, _ignore_index: Any) -> Any:
    """Score ignored ids too: -100 indexes from the end of the vocabulary."""
    return np.arange(len(tokens))


@mutation
def first_id(original: Fn, *arguments: Any) -> Any:
    """Score only the first id of each position."""
    return original(*arguments)[:1]


@mutation
def time_first(original: Fn, *arrays: Any, **options: Any) -> Any:
    """Return the results of a (B, T, V) batch in the order (T, B) with the shape (B, T)."""
    found = original(*arrays, **options)
    if np.ndim(next(iter((*arrays, *options.values())))) != 3:
        return found
    parts = tuple(
        np.swapaxes(part, 0, 1).reshape(part.shape) for part in (found if isinstance(found, tuple) else (found,))
    )
    return parts if isinstance(found, tuple) else parts[0]
