"""SAPO's gate where the ratio is so large that its slope is all but 0."""

import mpmath
import numpy as np
import pytest

from gates_reference.oracle.losses import policy_loss


@pytest.mark.parametrize("excess", [1.0, 30.0, 700.0, 709.0, 712.0, 730.0, 743.0])
def test_the_slope_is_right_to_the_least_number_above_zero(excess: float) -> None:
    """The slope -4 sigma' r A against 60 digits; exp(x) is infinite from 710 on, and the slope above 0 until 745."""
    difference = float(np.log1p(excess))
    found = policy_loss(
        np.array([[0.0]]) - 1.0,
        old=np.array([[-1.0 - difference]]),
        reference=None,
        epsilon_low=None,
        epsilon_high=None,
        delta=None,
        kl_ratio=None,
        advantages=np.array([1.0]),
        mask=np.array([[True]]),
        algorithm="sapo",
        beta=0.0,
        sapo_temperature_positive=1.0,
        sapo_temperature_negative=1.05,
    )
    with mpmath.workdps(60):
        exact = mpmath.mpf(-1.0) - mpmath.mpf(-1.0 - difference)
        ratio = mpmath.exp(exact)
        x = ratio - 1
        wanted = -4 * ratio * mpmath.exp(-x) / (1 + mpmath.exp(-x)) ** 2
    unit = 2.0**-52  # 2u of float64
    assert found.gradient[0, 0] < 0.0
    assert abs(mpmath.mpf(float(found.gradient[0, 0])) - wanted) <= 4 * unit * found.gradient_scale[0, 0]
    assert found.gradient_scale[0, 0] <= float(-wanted) * (2 + ratio) + 4.1 * np.finfo(float).tiny * float(ratio)
