"""Filters of the next-token distribution, the draw from what they leave, and how far two distributions differ.

A filter takes probabilities p (..., V) of a normalised distribution and says which tokens stay.
"""

import numpy as np

from gates_reference.oracle.definitions.logprobs import log_softmax
from gates_reference.oracle.inputs import Bools, Floats, Ints


def penalised(logits: Floats, penalty: float, seen: Bools) -> Floats:
    """Divide the logit of a seen token by the penalty if positive, else multiply it. arXiv 1909.05858, section 4.1."""
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)


def counted(logits: Floats, presence: float, frequency: float, counts: Ints) -> Floats:
    """Subtract `frequency` for each occurrence of a token, `presence` if there is one. OpenAI's API, "Frequency penalties"."""
    return np.asarray(logits - counts * frequency - (counts > 0) * presence)


def greedy(logits: Floats) -> Floats:
    """The log-probs that put all mass on the lowest id of the maximum."""
    first = np.argmax(logits, axis=-1)[..., None]
    return np.where(np.arange(logits.shape[-1]) == first, 0.0, -np.inf)


def restrict(logprobs: Floats, stays: Bools) -> Floats:
    """The distribution renormalised over the tokens that stay."""
    return log_softmax(np.where(stays, logprobs, -np.inf), 1.0)


def top_k(p: Floats, k: int, ties: str) -> Bools:
    """The k likeliest tokens."""
    order = descending(p, ties)
    return _with_tied(p, _by_id(order, np.broadcast_to(np.arange(order.shape[-1]) < k, order.shape)), ties)


def top_p(p: Floats, mass: float, ties: str) -> Bools:
    """The smallest set of likeliest tokens whose mass reaches the bound, at least one. Holtzman et al. (arXiv 1904.09751)."""
    order = descending(p, ties)
    reached = np.cumsum(np.take_along_axis(p, order, axis=-1), axis=-1)
    stays = np.ones(order.shape, np.bool_)
    stays[..., 1:] = reached[..., :-1] < mass  # a token stays while the mass before it does not reach the bound
    return _with_tied(p, _by_id(order, stays), ties)


def likeliest(p: Floats, stays: Bools, count: int, ties: str) -> Bools:
    """What stays, and the `count` likeliest tokens: transformers' and mlx-lm's `min_tokens_to_keep`."""
    return stays | top_k(p, count, ties)


def min_p(p: Floats, share: float) -> Bools:
    """The tokens of at least this share of the largest probability. Nguyen et al. (arXiv 2407.01082)."""
    return np.asarray(p >= share * np.max(p, axis=-1, keepdims=True))


def xtc(p: Floats, threshold: float, acts: Bools, special: Bools) -> Bools:
    """Where it acts, of the tokens above the threshold the least likely and special ones stay. docs/definitions.md, "Sampling"."""
    above = p > threshold
    least = np.min(np.where(above, p, np.inf), axis=-1, keepdims=True)
    return np.asarray(~acts[..., None] | (p <= least) | special)


def descending(p: Floats, ties: str) -> Ints:
    """Ids from likely to unlikely; among equals the higher id first for "higher-id", else the lower."""
    if ties == "higher-id":
        return np.asarray(p.shape[-1] - 1 - np.argsort(-p[..., ::-1], axis=-1, kind="stable"))
    return np.argsort(-p, axis=-1, kind="stable")


def running_sums(logprobs: Floats) -> Floats:
    """C_k = sum of the probabilities of ids 0 ... k."""
    return np.asarray(np.cumsum(np.exp(logprobs), axis=-1))


def draw(sums: Floats, u: Floats) -> Ints:
    """The least k with C_k > u C_V: inverse transform sampling in id order."""
    return np.asarray(np.sum(sums <= u[..., None] * sums[..., -1:], axis=-1, dtype=np.int64))


def intervals(sums: Floats) -> tuple[Floats, Floats]:
    """Token k is drawn by the u of [C_{k-1} / C_V, C_k / C_V)."""
    high = sums / sums[..., -1:]
    return np.concatenate([np.zeros((*high.shape[:-1], 1)), high[..., :-1]], axis=-1), high


def expected_difference(logprobs_a: Floats, logprobs_b: Floats) -> Floats:
    """The chance that one u draws different tokens: 1 - sum_k |I_k^A intersect I_k^B|, I_k the interval of token k."""
    (low_a, high_a), (low_b, high_b) = (intervals(running_sums(x)) for x in (logprobs_a, logprobs_b))
    overlap = np.maximum(np.minimum(high_a, high_b) - np.maximum(low_a, low_b), 0.0)
    return np.asarray(np.maximum(1.0 - np.sum(overlap, axis=-1), 0.0))


def largest_difference(logprobs_a: Floats, logprobs_b: Floats, floor: float) -> Floats:
    """The maximum of |log p_v - log q_v| over the tokens with a log-prob of at least `floor` in either."""
    matters = (logprobs_a >= floor) | (logprobs_b >= floor)
    difference = np.subtract(logprobs_a, logprobs_b, out=np.zeros(logprobs_a.shape), where=matters)
    return np.asarray(np.max(np.abs(difference), axis=-1))


def _with_tied(p: Floats, stays: Bools, ties: str) -> Bools:
    """For "all", every token that is as likely as the least likely of those that stay stays too."""
    if ties != "all":
        return stays
    return np.asarray(p >= np.min(p, axis=-1, keepdims=True, where=stays, initial=np.inf))


def _by_id(order: Ints, stays: Bools) -> Bools:
    result = np.empty(order.shape, np.bool_)
    np.put_along_axis(result, order, stays, axis=-1)
    return result
