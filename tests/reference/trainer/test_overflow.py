"""A row whose ratio overflows: what is held or masked in it keeps a gradient of 0, for inf times 0 is NaN."""

import math

import mlx.core as mx
import numpy as np
import pytest

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import gmpo, ratio


@pytest.mark.parametrize(("gain", "want"), [(-1.0, [math.inf, 0.0]), (0.0, [0.0, 0.0])], ids=["loss", "zero"])
def test_what_gmpo_holds_has_no_gradient_in_an_infinite_row(gain: float, want: list[float]) -> None:
    """Log-ratios 1000 and -0.7 of a row: with A = -1 the first is free and overflows, the second is held; A = 0 holds both."""
    gains = mx.array([[gain]])

    def loss(log_ratio: mx.array) -> mx.array:
        held = gmpo.hold(double.Double(log_ratio, mx.zeros((1, 2))), gains, 0.4, 0.4)
        return mx.sum(-mx.exp(mx.mean(held.high, axis=1, keepdims=True)) * gains)

    assert mx.grad(loss)(mx.array([[1000.0, -0.7]])).tolist() == [want]


def test_padding_of_an_infinite_row_has_no_gradient() -> None:
    """MLX multiplies the cotangent of `where` by the mask, and inf times 0 is NaN: `select` selects it away."""
    mask = mx.array([[True, True, False], [True, False, False]])
    values = mx.array([[100.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    gradient = np.array(mx.grad(lambda x: mx.exp(mx.sum(ratio.select(mask, x), axis=1)).sum())(values))
    expected = np.array([[np.inf, np.inf, 0.0], [np.exp(0.5), 0.0, 0.0]], np.float32)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
