"""Pairs of completions: which one is chosen, and by how much the policy prefers it to the rejected one.

Rows 2k and 2k + 1 are a pair of one prompt. The sign of its advantage marks the chosen (+1) and the rejected row (-1).
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import ratio
from gates_reference.trainer.algorithms.protocol import MicroBatch


def offline(count: int) -> NDArray[np.float32]:
    """Return the advantages (2 P,) of pairs that come chosen first: +1 and -1 in turn."""
    return np.tile(np.array([1.0, -1.0], np.float32), count)


def prefer(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Choose the higher of two scores: (2 P,) of +1 and -1; a tie prefers the first, and a NaN makes both 0.

    Raises:
        ValueError: the number of scores is odd.
    """
    if scores.ndim != 1 or not scores.size or scores.size % 2:
        raise ValueError(f"scores have shape {scores.shape}, must be (2 P,), two completions of each prompt")
    first, second = scores[0::2], scores[1::2]
    signs = np.where(second > first, -1.0, 1.0)
    signs = np.where(np.isnan(first) | np.isnan(second), 0.0, signs)
    return np.stack([signs, -signs], axis=1).reshape(-1).astype(np.float32)


def signs_of(batch: MicroBatch) -> mx.array:
    """Return the signs (P, 2) of a micro-batch's pairs: one +1 and one -1, or two zeros.

    Raises:
        ValueError: the rows are not pairs: an odd number, two groups in one pair, or other advantages.
    """
    advantages = np.asarray(batch.advantages)
    if advantages.ndim != 1 or advantages.size % 2:
        raise ValueError(
            f"`advantages` has shape {advantages.shape}, must be (2 P,): a pair is never split between micro-batches"
        )
    signs, groups = advantages.reshape(-1, 2), np.asarray(batch.groups).reshape(-1, 2)
    wrong = np.flatnonzero(
        (signs.sum(axis=1) != 0) | ~np.isin(signs[:, 0], (-1, 0, 1)) | (groups[:, 0] != groups[:, 1])
    )
    if wrong.size:
        k = int(wrong[0])
        raise ValueError(
            f"rows {2 * k} and {2 * k + 1} have advantages {signs[k].tolist()} and groups {groups[k].tolist()}, "
            "must be +1 and -1 (or 0 and 0) of one group"
        )
    return mx.array(signs.astype(np.float32))


def log_ratios(batch: MicroBatch, *, reference_free: bool, average: bool) -> double.Double:
    """Sum or average policy - reference over each completion (2 P, 1); reference-free, the policy's log-probs alone.

    Raises:
        ValueError: the reference is needed and None.
    """
    policy = ratio.select(batch.mask, batch.policy)
    if reference_free:
        difference = double.Double(policy, mx.zeros_like(policy))
    elif batch.reference is None:
        raise ValueError("reference is None, must be given unless reference_free is true")
    else:
        reference = mx.stop_gradient(ratio.select(batch.mask, batch.reference))
        difference = double.difference(policy, reference)
    if not average:
        return double.row_sum(difference)
    return double.row_mean(difference, mx.maximum(batch.mask.sum(axis=1, keepdims=True).astype(mx.float32), 1.0))


def margin(of_rows: double.Double, signs: mx.array) -> double.Double:
    """Subtract the rejected row's value from the chosen one's: (2 P, 1) and signs (P, 2) -> (P, 1), without rounding."""
    high, low = (half.reshape(-1, 2) * signs for half in of_rows)
    return double.row_sum(double.Double(high, low))


def minus_log_sigmoid(x: mx.array) -> mx.array:
    """Return -log sigma(x) = max(0, -x) + log(1 + exp(-|x|)) with an explicit slope; autograd's sigma(-x) - 1 cancels."""
    held = mx.stop_gradient(x)
    rest = double.exp(-mx.abs(held), mx.zeros_like(held))
    value = mx.maximum(-held, 0.0) + mx.log1p(rest)
    slope = -mx.where(held > 0, rest, 1.0) / (1.0 + rest)
    return value + slope * (x - held)
