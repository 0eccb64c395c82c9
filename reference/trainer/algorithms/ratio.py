"""Importance ratios in log space: the difference policy - old of each token, its mean and its sum over a completion.

Everything stays a pair (`pairs.Pair`) until `precise.exp` takes it: half an ulp of a difference of 10 is 5 ulp of the ratio.
"""

from typing import cast

import mlx.core as mx

from reference.trainer import double
from reference.trainer.algorithms.pairs import Pair, row_mean, row_sum


def select(mask: mx.array, values: mx.array) -> mx.array:
    """The values where the mask is true and 0 elsewhere, whatever stands there; the same holds for the gradient.

    MLX's own gradient of `where` is the cotangent times the mask: NaN where a row's ratio overflows and its padding is masked.
    """
    shape = mx.broadcast_shapes(mask.shape, values.shape)
    return cast("mx.array", _select_rule(mx.broadcast_to(mask, shape), mx.broadcast_to(values, shape)))


@mx.custom_function
def _select_rule(mask: mx.array, values: mx.array) -> mx.array:
    return mx.where(mask, values, mx.zeros((), values.dtype))


@_select_rule.vjp
def _select_vjp(primals: tuple[mx.array, mx.array], cotangent: mx.array, _: mx.array) -> tuple[mx.array, mx.array]:
    return mx.zeros_like(primals[0]), mx.where(primals[0], cotangent, mx.zeros((), cotangent.dtype))


def token(policy: mx.array, old: mx.array | None) -> Pair:
    """Log-ratios policy - old (B, T); `old` is a constant, and without it the ratio is 1 with its gradient alive."""
    return Pair(*double.difference(policy, mx.stop_gradient(policy if old is None else old)))


def sequence_mean(log_ratio: Pair, counts: mx.array) -> Pair:
    """The mean log-ratio of each completion (B, 1), GSPO's (arXiv 2507.18071, eq. 7); `counts` (B, 1) are its tokens."""
    return row_mean(log_ratio, mx.maximum(counts, 1.0))


def sequence_sum(log_ratio: Pair) -> Pair:
    """The summed log-ratio of each completion (B, 1): the likelihood ratio of the whole sequence."""
    return row_sum(log_ratio)
