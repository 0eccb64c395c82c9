"""Textbook limits of the log-probs of drawn tokens, as samplers compute them in float32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gates.arithmetic.bounded import exp, log, where
from gates.arithmetic.number import Floats, Number, constant, number, widest


def log_probs(
    logits: npt.ArrayLike,
    tokens: npt.ArrayLike,
    temperature: float,
    *,
    kept: npt.ArrayLike | None = None,
    seen: npt.ArrayLike | None = None,
    penalty: float = 1.0,
) -> Floats:
    """Bound the rounding of log(exp(x_k / τ) / Σ_v exp(x_v / τ)), the sum over the tokens that filters keep.

    Args:
        logits: (N, V), as recorded; float32.
        tokens: (N,) ids k, which are all kept.
        temperature: τ, above 0.
        kept: (N, V) bool; None: all.
        seen: (N, V) bool, the tokens with a penalty; None: none.
        penalty: the repetition penalty: a positive logit is divided by it, another multiplied.

    Returns:
        (N,) limits, float64.

    Source: mlx-lm's `logits - logsumexp`, transformers' `log_softmax` of warped scores, vLLM's log-probs of samples.
    """
    x = number(logits)
    if seen is not None:
        factor = constant(penalty, x.dtype).plus_relative(1.0)
        x = where(np.asarray(seen), where(x.value > 0.0, x / factor, x * factor), x)
    if temperature != 1.0:
        x = x / constant(temperature, x.dtype).plus_relative(1.0)
    stays = np.ones(x.shape, np.bool_) if kept is None else np.asarray(kept)
    chosen = (np.arange(len(x.value)), np.asarray(tokens))
    return widest(_forms(x, stays, chosen))


def _forms(x: Number, stays: npt.NDArray[np.bool_], chosen: tuple[npt.NDArray[np.int64], ...]) -> Iterator[Number]:
    largest = np.max(np.where(stays, x.value, -np.inf), axis=1)  # one of the elements, so that its error cancels
    shifted = x - largest[:, None]
    weights = where(stays, exp(shifted), 0.0)
    total = weights.sum(axis=1)
    yield shifted[chosen] - log(total)
    yield x[chosen] - (log(total) + largest)
    yield log(weights[chosen] / total)
