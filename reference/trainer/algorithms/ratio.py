"""Importance ratios in log space: policy - old of each token, and its mean and sum over a completion.

Log-ratios are double-floats until `double.exp`: half an ulp of a difference of 10 is 5 ulp of the ratio.
"""

from typing import cast

import mlx.core as mx

from reference.trainer import double
from reference.trainer.double import Double


def select(mask: mx.array, values: mx.array) -> mx.array:
    """Return the values where the mask is true and 0 elsewhere; the gradient is selected in the same way.

    MLX's own gradient of `where` multiplies by the mask, which gives NaN in masked slots of a row whose ratio overflows.
    """
    shape = mx.broadcast_shapes(mask.shape, values.shape)
    return cast("mx.array", _select_rule(mx.broadcast_to(mask, shape), mx.broadcast_to(values, shape)))


@mx.custom_function
def _select_rule(mask: mx.array, values: mx.array) -> mx.array:
    return mx.where(mask, values, mx.zeros((), values.dtype))


@_select_rule.vjp
def _select_vjp(primals: tuple[mx.array, mx.array], cotangent: mx.array, _: mx.array) -> tuple[mx.array, mx.array]:
    return mx.zeros_like(primals[0]), mx.where(primals[0], cotangent, mx.zeros((), cotangent.dtype))


def token(policy: mx.array, old: mx.array | None) -> Double:
    """Return the log-ratios policy - old (B, T); `old` is a constant, and None means the policy itself (ratio 1)."""
    return double.difference(policy, mx.stop_gradient(policy if old is None else old))


def sequence_mean(log_ratio: Double, counts: mx.array) -> Double:
    """Average the log-ratio over each completion (B, 1), as in GSPO (arXiv 2507.18071, eq. 7); `counts` (B, 1) are its tokens."""
    return double.row_mean(log_ratio, mx.maximum(counts, 1.0))


def sequence_sum(log_ratio: Double) -> Double:
    """Sum the log-ratio over each completion (B, 1), which gives the likelihood ratio of the whole sequence."""
    return double.row_sum(log_ratio)
