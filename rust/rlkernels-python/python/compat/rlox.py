"""rlox's post-training kernels under rlox's names and call shapes: results, types and exceptions are those of rlox 1.2.

`from rlkernels.compat import rlox` in place of `import rlox`: `compute_group_advantages`,
`compute_batch_group_advantages`, `compute_token_kl`, `compute_token_kl_schulman`, their batched and `_f32` forms, and
`pack_sequences`. Where rlox's type stub says something else than its code does, the code counts, as in its own tests:
bins are not filled up to `max_length`, and a sequence that is longer raises. Different on purpose:

- `compute_token_kl_schulman` and its forms have d = log_ref - log_policy, as the "unbiased KL estimator used by TRL" that
  rlox announces. rlox has d the other way round, which is biased.
- A NaN reward means "not scored": its advantage is 0 and the others are those of the group without it. rlox returns NaN for
  the whole group. An infinite reward is a ValueError, where rlox returns NaN.
- `compute_token_kl` and its forms count 0 for a policy's log-probability of -inf, as 0 log 0 is in the definition; only a
  reference of -inf under a possible token gives +inf. rlox returns NaN for the whole sum.
- Rewards that are equal give exactly 0; sums are compensated or in float64, where rlox keeps the rounding of its sums.
- More is taken: arrays of any layout, of other libraries through DLPack, both float types in every function, rewards in a
  list or as integers, token ids of any integer type.
- A refused argument is named in the message. An argument that cannot be read is a TypeError or a ValueError.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Sized
from typing import TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

import rlkernels

__all__ = [
    "compute_batch_group_advantages",
    "compute_batch_token_kl",
    "compute_batch_token_kl_f32",
    "compute_batch_token_kl_schulman",
    "compute_batch_token_kl_schulman_f32",
    "compute_group_advantages",
    "compute_token_kl",
    "compute_token_kl_f32",
    "compute_token_kl_schulman",
    "compute_token_kl_schulman_f32",
    "pack_sequences",
]

_Float = TypeVar("_Float", np.float32, np.float64)

#: A group whose standard deviation is below this gets advantages of 0.
_LEAST_STD = 1e-8


class Packed(TypedDict):
    """One bin of `pack_sequences`."""

    input_ids: NDArray[np.uint32]
    attention_mask: NDArray[np.uint32]
    position_ids: NDArray[np.uint32]
    sequence_starts: NDArray[np.uint64]


def compute_group_advantages(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """(reward - mean) / std of the rewards of one prompt; zeros where the std, with ddof 0, is below 1e-8.

    Args:
        rewards: shape (G,), float64.

    Returns:
        Shape (G,).

    Raises:
        TypeError: `rewards` holds no numbers.
        ValueError: `rewards` is infinite, or not of one dimension.
    """
    return compute_batch_group_advantages(rewards, max(1, _count(rewards)))


def compute_batch_group_advantages(rewards: NDArray[np.float64], group_size: int) -> NDArray[np.float64]:
    """`compute_group_advantages` of every group of `group_size` rewards, one prompt after the other.

    Args:
        rewards: shape (prompts * group_size,), float64.
        group_size: completions per prompt.

    Returns:
        The shape of `rewards`.

    Raises:
        TypeError: `rewards` holds no numbers.
        ValueError: as `compute_group_advantages`; `group_size` is below 1 or does not divide the number of rewards.
    """
    if isinstance(rewards, np.ndarray) and rewards.shape == (0,) and group_size > 0:
        return np.zeros_like(rewards)
    return rlkernels.group_advantages(rewards, group_size, ddof=0, eps=_LEAST_STD, eps_mode="threshold")


def compute_token_kl(log_probs_policy: NDArray[np.float64], log_probs_ref: NDArray[np.float64]) -> float:
    """sum(exp(log_p) * (log_p - log_q)): the exact divergence where the two arrays hold a whole vocabulary's values.

    Over sampled tokens it is not an estimate of the divergence: sampling has weighted them by p already. For those,
    `rlkernels.token_kl` with k1 or k3 is unbiased.

    Args:
        log_probs_policy: shape (T,), log-probabilities in nats.
        log_probs_ref: the same shape and type.

    Returns:
        The sum.

    Raises:
        TypeError: not arrays of one float type.
        RuntimeError: lengths that differ.
        ValueError: an array that has not one dimension.
    """
    policy, reference = _lines(log_probs_policy, log_probs_ref, RuntimeError)
    return float(rlkernels.full_kl(policy, reference)) if policy.size else 0.0


def compute_token_kl_schulman(log_probs_policy: NDArray[np.float64], log_probs_ref: NDArray[np.float64]) -> float:
    """Schulman's unbiased estimator as TRL uses it, k3 = exp(d) - d - 1 with d = log_ref - log_policy, summed.

    rlox 1.2 has the ratio the other way round, d = log_policy - log_ref, in its code and in the formula that stands
    beside the words "the unbiased KL estimator used by TRL": the words are followed, since that formula is biased.

    Args:
        log_probs_policy: shape (T,), log-probabilities in nats of tokens that the policy sampled.
        log_probs_ref: the same shape and type.

    Returns:
        The sum over the tokens.

    Raises:
        TypeError: not arrays of one float type.
        RuntimeError: lengths that differ.
        ValueError: an array that has not one dimension.
    """
    policy, reference = _lines(log_probs_policy, log_probs_ref, RuntimeError)
    return float(rlkernels.token_kl(policy, reference, estimator="k3", reduction="sum"))


def compute_batch_token_kl(
    log_probs_policy: NDArray[np.float64], log_probs_ref: NDArray[np.float64], seq_len: int
) -> NDArray[np.float64]:
    """`compute_token_kl` of every run of `seq_len` values.

    Args:
        log_probs_policy: shape (batch * seq_len,), one sequence after the other.
        log_probs_ref: the same shape and type.
        seq_len: values per sequence.

    Returns:
        Shape (batch,), the type of `log_probs_policy`.

    Raises:
        TypeError: not arrays of one float type.
        ValueError: lengths that differ, an array that has not one dimension; `seq_len` is below 1 or does not divide their length.
    """
    return rlkernels.full_kl(*_matrices(log_probs_policy, log_probs_ref, seq_len))


def compute_batch_token_kl_schulman(
    log_probs_policy: NDArray[np.float64], log_probs_ref: NDArray[np.float64], seq_len: int
) -> NDArray[np.float64]:
    """`compute_token_kl_schulman` of every run of `seq_len` tokens.

    Args:
        log_probs_policy: shape (batch * seq_len,), one sequence after the other.
        log_probs_ref: the same shape and type.
        seq_len: tokens per sequence.

    Returns:
        Shape (batch,), the type of `log_probs_policy`.

    Raises:
        TypeError: not arrays of one float type.
        ValueError: lengths that differ, an array that has not one dimension; `seq_len` is below 1 or does not divide their length.
    """
    policy, reference = _matrices(log_probs_policy, log_probs_ref, seq_len)
    result: NDArray[np.float64] = np.asarray(rlkernels.token_kl(policy, reference, estimator="k3", reduction="sum"))
    return result


# One kernel serves both types; the names are those that callers of rlox write.
compute_token_kl_f32 = compute_token_kl
compute_token_kl_schulman_f32 = compute_token_kl_schulman
compute_batch_token_kl_f32 = compute_batch_token_kl
compute_batch_token_kl_schulman_f32 = compute_batch_token_kl_schulman


def pack_sequences(sequences: Sequence[NDArray[np.uint32]], max_length: int) -> list[Packed]:
    """Bins of at most `max_length` tokens, first-fit-decreasing.

    Args:
        sequences: token ids, each of one dimension.
        max_length: tokens per bin, at least 1.

    Returns:
        Of every bin, three uint32 arrays as long as its tokens: `input_ids`; `attention_mask`, all 1; `position_ids`,
        counted from 0 in every sequence; and the uint64 array `sequence_starts`, where its sequences begin.

    Raises:
        RuntimeError: a sequence is longer than `max_length`.
        TypeError: a sequence that is no array of integers.
        ValueError: a sequence that has not one dimension, an id that does not fit into uint32, `max_length` below 1.
    """
    ids = [_token_ids(number, sequence) for number, sequence in enumerate(sequences)]
    for number, tokens in enumerate(ids):
        if len(tokens) > max_length > 0:
            raise RuntimeError(f"sequence {number} has length {len(tokens)}, must be at most `max_length` {max_length}")
    if not ids:
        return []
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    indices, offsets = rlkernels.pack_sequences(lengths, max_length)[:2]
    return [_bin([ids[index] for index in indices[start:end]]) for start, end in itertools.pairwise(offsets.tolist())]


def _bin(sequences: list[NDArray[np.uint32]]) -> Packed:
    lengths = [len(tokens) for tokens in sequences]
    return Packed(
        input_ids=np.concatenate(sequences),
        attention_mask=np.ones(sum(lengths), np.uint32),
        position_ids=np.concatenate([np.arange(length, dtype=np.uint32) for length in lengths]),
        sequence_starts=np.cumsum([0, *lengths[:-1]]).astype(np.uint64),
    )


def _token_ids(number: int, sequence: NDArray[np.uint32]) -> NDArray[np.uint32]:
    tokens = np.asarray(sequence)
    name = f"`sequences[{number}]`"
    if tokens.dtype.kind not in "iu":
        raise TypeError(
            f"{name} holds {tokens.dtype}, must be an array of integers; convert it with astype(numpy.uint32)"
        )
    if tokens.ndim != 1:
        raise ValueError(f"{name} has shape {tokens.shape}, must have one dimension")
    if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < 2**32:
        raise ValueError(f"{name} has ids from {tokens.min()} to {tokens.max()}, must be at least 0 and below 2**32")
    return tokens.astype(np.uint32, copy=False)


def _count(values: Sized) -> int:
    """How many there are; 0 where that cannot be asked, which the kernel then says with the argument's name."""
    try:
        return len(values)
    except TypeError:
        return 0


def _lines(
    policy: NDArray[_Float], reference: NDArray[_Float], mismatch: type[Exception] = ValueError
) -> tuple[NDArray[_Float], NDArray[_Float]]:
    """Both as NumPy arrays of one dimension and one length; `mismatch` is what different lengths raise."""
    policy, reference = _line("log_probs_policy", policy), _line("log_probs_ref", reference)
    if policy.dtype != reference.dtype:
        raise TypeError(
            f"`log_probs_ref` is an array of {reference.dtype}, must be of {policy.dtype} like `log_probs_policy`"
        )
    if len(policy) != len(reference):
        raise mismatch(
            f"`log_probs_ref` has {len(reference)} elements, must have {len(policy)} like `log_probs_policy`"
        )
    return policy, reference


def _line(name: str, values: NDArray[_Float]) -> NDArray[_Float]:
    if isinstance(values, np.ndarray):
        array = values
    elif hasattr(values, "__dlpack__"):
        array = np.from_dlpack(values)
    else:
        kind = type(values).__name__
        raise TypeError(f"`{name}` is of type {kind}, must be an array of float32 or float64; use numpy.asarray")
    if array.dtype not in {np.dtype(np.float32), np.dtype(np.float64)}:
        raise TypeError(f"`{name}` is an array of {array.dtype}, must be one of float32 or float64; use astype")
    if array.ndim != 1:
        raise ValueError(f"`{name}` has shape {array.shape}, must have one dimension")
    return array


def _matrices(
    policy: NDArray[_Float], reference: NDArray[_Float], seq_len: int
) -> tuple[NDArray[_Float], NDArray[_Float]]:
    """Both with one row per sequence."""
    policy, reference = _lines(policy, reference)
    if seq_len < 1:
        raise ValueError(f"`seq_len` is {seq_len}, must be at least 1")
    if len(policy) % seq_len:
        raise ValueError(f"`log_probs_policy` has {len(policy)} elements, must be divisible by `seq_len` {seq_len}")
    return policy.reshape(-1, seq_len), reference.reshape(-1, seq_len)
