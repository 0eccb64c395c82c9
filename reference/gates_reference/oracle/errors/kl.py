"""What an error of a divergence is measured in: its absolute terms.

Source: docs/definitions.md, "Accuracy": sums are measured by the sum of their absolute terms.
"""

import numpy as np

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.inputs import Floats


def weighted_scale(values: Floats, log_ratio: Exact | None, *, averaged: bool) -> Floats:
    """The scale S = |k| r of each slot, times max(1, |log r|) for a sequence's ratio.

    The rounding of the mean log ratio moves its exponential by as much as the mean is large.

    Args:
        values: the estimates, any shape.
        log_ratio: of the same shape, the logarithm of the ratio that multiplies each; None where all ratios are 1.
        averaged: whether it is a sequence's mean.
    """
    if log_ratio is None:
        return np.abs(values)
    condition = np.maximum(1.0, np.abs(log_ratio.value)) if averaged else 1.0
    return np.abs(values) * exact.exp(log_ratio) * condition


def vocabulary_scale(terms: Floats) -> Floats:
    """The scale S = sum_v |p_v (log p_v - log q_v)|, of each row of (N, V) terms."""
    return np.asarray(np.sum(np.abs(terms), axis=-1))
