"""The logistic function and its logarithm, without overflow."""

import numpy as np

from gates_reference.oracle.inputs import Floats


def sigmoid(x: Floats) -> Floats:
    """The logistic function sigma(x) = 1 / (1 + exp(-x)) = exp(x) / (1 + exp(x)): the form whose exponent is not positive."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def minus_log_sigmoid(x: Floats) -> Floats:
    """The value -log sigma(x) = log(1 + exp(-x)) = max(0, -x) + log(1 + exp(-|x|))."""
    return np.asarray(np.maximum(-x, 0.0) + np.log1p(np.exp(-np.abs(x))))
