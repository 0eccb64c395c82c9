"""Log-probabilities of tokens from logits, and the way back for gradients.

x are logits (..., V), M is their maximum, tau the temperature.
"""

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.inputs import Floats, Ints


def shifted(x: Floats, tau: float) -> Floats:
    """The scaled distance to the maximum, (x_v - M) / tau."""
    return np.asarray((x - np.max(x, axis=-1, keepdims=True)) / tau)


def log_sum(shifted_logits: Floats) -> Floats:
    """The logarithm of sum_w exp((x_w - M) / tau), (..., 1)."""
    return np.asarray(np.log(np.sum(np.exp(shifted_logits), axis=-1, keepdims=True)))


def log_softmax(x: Floats, tau: float) -> Floats:
    """The log-probability log p_v = (x_v - M) / tau - log sum_w exp((x_w - M) / tau)."""
    scaled = shifted(x, tau)
    return scaled - log_sum(scaled)


def selected(x: Floats, ids: Ints, tau: float) -> Floats:
    """The log-probabilities log p_id of the K chosen tokens (..., K) of each row."""
    scaled = shifted(x, tau)
    return at(scaled, ids) - log_sum(scaled)


def at(rows: Floats, ids: Ints) -> Floats:
    """The elements of each row at its ids (..., K)."""
    return np.asarray(np.take_along_axis(rows, ids, axis=-1))


def entropy(logprobs: Floats) -> Floats:
    """The entropy H = -sum_v p_v log p_v, where a token of probability 0 adds 0. Shannon (1948)."""
    possible = logprobs > -np.inf
    terms = np.multiply(np.exp(logprobs), logprobs, out=np.zeros(logprobs.shape), where=possible)
    return np.asarray(0.0 - np.sum(terms, axis=-1))


def above_mean(logprobs: Floats) -> Floats:
    """The log-probability less its mean -H, log p_v + H; 0 where p_v is 0."""
    entropies = entropy(logprobs)[..., None]
    return np.add(logprobs, entropies, out=np.zeros(logprobs.shape), where=logprobs > -np.inf)


def backward(logprobs: Floats, ids: Ints, g: Floats, g_entropy: Floats, tau: float) -> Floats:
    """The gradient dL/dx_v = (sum_k g_k (onehot(id_k)_v - p_v) - g_H p_v (log p_v + H)) / tau, g_k = dL/dlogprob_k, g_H = dL/dH.

    The chain rule: d log p_id / dx_v = (onehot_v - p_v) / tau, dH / dx_v = -p_v (log p_v + H) / tau.
    """
    p, chosen = np.exp(logprobs), onehot(ids, logprobs.shape[-1])
    of_tokens = np.sum(g[..., None] * (chosen - p[..., None, :]), axis=-2)
    of_entropy = g_entropy[..., None] * p * above_mean(logprobs)
    return np.asarray((of_tokens - of_entropy) / tau)


def onehot(ids: Ints, vocabulary: int) -> Floats:
    """A 1 at each id of (..., K), else 0, as (..., K, V)."""
    return np.asarray(np.arange(vocabulary) == ids[..., None], np.float64)


def slots(prompts: Ints, completions: Ints, width: int) -> npt.NDArray[np.bool_]:
    """Position t of (B, L - 1) scores token t + 1, so n tokens after P are scored at P - 1 ... P + n - 2."""
    position = np.arange(width - 1)
    return np.asarray((position >= prompts[:, None] - 1) & (position < (prompts + completions)[:, None] - 1))
