"""What an error of an advantage is measured in.

Source: docs/definitions.md, "Accuracy": S = max|R_g| / (std with eps).
"""

import numpy as np

from gates_reference.oracle.inputs import Floats


def scale(scored: Floats, divisor: float) -> float:
    """The scale S = max|R| / divisor of a group's scored rewards; 0, "exact", where the divisor is infinite."""
    return float(np.max(np.abs(scored))) / divisor


def two_stage_scale(first_stage: Floats, weights: Floats, divisor: float) -> float:
    """The scale S = max over rows of sum_f |w_f| S_f, over the second stage's divisor.

    Args:
        first_stage: (B, F), the scales of the z-scores.
        weights: (F,).
        divisor: the batch's std + eps.
    """
    return float(np.max(first_stage @ np.abs(weights))) / divisor
