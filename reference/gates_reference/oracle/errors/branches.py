"""Branch points: near a bound at which a value or a gradient jumps, either branch is accepted."""

import numpy as np

from gates_reference.oracle.inputs import Bools, Floats

BRANCH_ULPS = 16  # docs/definitions.md, "Branch points": so near a bound either branch is accepted


def near_bound(ratio: Floats, bounds: tuple[float, ...], dtype: np.dtype) -> Bools:
    """Whether a ratio is within 16 ulp of one of the bounds, where either branch is accepted.

    Args:
        ratio: any shape, float64.
        bounds: those that jump; infinite ones are never near.
        dtype: whose ulp is counted.

    Returns:
        bool of the same shape.

    Source: docs/definitions.md, "Branch points".
    """
    near = np.zeros(ratio.shape, np.bool_)
    for bound in bounds:
        if np.isfinite(bound):
            near |= np.abs(ratio - bound) <= BRANCH_ULPS * float(np.spacing(np.abs(dtype.type(bound))))
    return near
