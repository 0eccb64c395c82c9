"""Which completion is preferred, where scores decide: of two, and of many."""

import math
from collections.abc import Sequence

import numpy as np

from gates_reference.oracle.inputs import Floats


def prefer(first: Floats, second: Floats) -> Floats:
    """The sign of the first: +1 if its score is at least the other's, else -1; 0 where one is NaN. arXiv 2402.04792."""
    sign = np.where(first >= second, 1.0, -1.0)
    return np.where(np.isnan(first) | np.isnan(second), 0.0, sign)


def best(scores: Sequence[float]) -> int | None:
    """The lowest index of the highest score that is not NaN; None where all are. arXiv 2009.01325, section 4.1."""
    known = [k for k, score in enumerate(scores) if not math.isnan(score)]
    return max(known, key=lambda k: (scores[k], -k)) if known else None
