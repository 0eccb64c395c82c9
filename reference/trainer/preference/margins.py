"""Pairs of completions: which is chosen, and how far the policy prefers it over the rejected one.

Rows 2k and 2k + 1 are a pair, of one prompt. The sign of its advantage says which row is chosen (+1) and which rejected (-1).
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer import double
from reference.trainer.algorithms import pairs, ratio
from reference.trainer.algorithms.protocol import Scored


def offline(count: int) -> NDArray[np.float32]:
    """The advantages (2 P,) of pairs that come chosen first: +1, -1, again and again."""
    return np.tile(np.array([1.0, -1.0], np.float32), count)


def prefer(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """The higher of two scores is chosen, (2 P,) of +1 and -1; a tie prefers the first, and a NaN makes both 0.

    Raises:
        ValueError: an odd number of scores.
    """
    if scores.ndim != 1 or not scores.size or scores.size % 2:
        raise ValueError(f"scores have shape {scores.shape}, must be (2 P,), two completions of each prompt")
    first, second = scores[0::2], scores[1::2]
    signs = np.where(second > first, -1.0, 1.0)
    signs = np.where(np.isnan(first) | np.isnan(second), 0.0, signs)
    return np.stack([signs, -signs], axis=1).reshape(-1).astype(np.float32)


def signs_of(part: Scored) -> mx.array:
    """The signs (P, 2) of a part's pairs: one +1 and one -1, or two zeros.

    Raises:
        ValueError: the rows are no pairs: an odd number, two groups in one pair, or other advantages.
    """
    given = np.asarray(part.advantages)
    if given.ndim != 1 or given.size % 2:
        raise ValueError(f"`advantages` has shape {given.shape}, must be (2 P,): a pair is never split between parts")
    signs, groups = given.reshape(-1, 2), np.asarray(part.groups).reshape(-1, 2)
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


def log_ratios(part: Scored, *, reference_free: bool, average: bool) -> pairs.Pair:
    """Each completion's policy - reference (2 P, 1), summed or averaged over its tokens; without reference, of the policy.

    Raises:
        ValueError: the reference is needed and missing.
    """
    policy = ratio.select(part.mask, part.policy)
    if reference_free:
        difference = pairs.Pair(policy, mx.zeros_like(policy))
    elif part.reference is None:
        raise ValueError("reference is None, must be given unless reference_free is true")
    else:
        reference = mx.stop_gradient(ratio.select(part.mask, part.reference))
        difference = pairs.Pair(*double.difference(policy, reference))
    if not average:
        return pairs.row_sum(difference)
    return pairs.row_mean(difference, mx.maximum(part.mask.sum(axis=1, keepdims=True).astype(mx.float32), 1.0))


def margin(of_rows: pairs.Pair, signs: mx.array) -> pairs.Pair:
    """The chosen row's value minus the rejected one's, (P, 1), without an error; (2 P, 1) and (P, 2)."""
    high, low = (part.reshape(-1, 2) * signs for part in of_rows)
    return pairs.row_sum(pairs.Pair(high, low))


def minus_log_sigmoid(x: mx.array) -> mx.array:
    """-log sigma(x) = max(0, -x) + log(1 + exp(-|x|)); its slope is written down: sigma(-x) - 1 cancels in autograd."""
    held = mx.stop_gradient(x)
    rest = double.exp(-mx.abs(held), mx.zeros_like(held))
    value = mx.maximum(-held, 0.0) + mx.log1p(rest)
    slope = -mx.where(held > 0, rest, 1.0) / (1.0 + rest)
    return value + slope * (x - held)
