"""Which completion is preferred, where scores decide: of two, and of many."""

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import preference_choice as definition
from gates_reference.oracle.inputs import Floats, floats


def prefer(scores: npt.ArrayLike) -> Floats:
    """Of two completions per prompt the one with the higher score is chosen (+1), the other rejected (-1); a tie takes the first.

    Args:
        scores: (2 P,), rows 2k and 2k + 1 of one prompt; NaN is not scored.

    Returns:
        (2 P,) float64: +1 and -1, or 0 and 0 where one of the two is not scored.

    Raises:
        ValueError: an odd number of scores.

    Source: Online DPO (arXiv 2402.04792), with an oracle preference of 0 or 1; docs/definitions.md, "Preference losses".
    """
    array = floats("scores", scores, ndim=1)
    if array.size % 2 or not array.size:
        raise ValueError(f"`scores` has {array.size} elements, must be two of each prompt")
    sign = definition.prefer(array[0::2], array[1::2])
    return np.stack([sign, -sign], axis=1).reshape(-1) + 0.0


def best_of_n(scores: npt.ArrayLike, group_size: int) -> npt.NDArray[np.int64]:
    """The row of each group with the highest score that is not NaN, the lowest row of several.

    Args:
        scores: (R,), prompt-major.
        group_size: n, divides R.

    Returns:
        (P,) int64, indices into the rows.

    Raises:
        ValueError: a group whose scores are all NaN, or n that does not divide R.

    Source: Best-of-N (arXiv 2009.01325, section 4.1); docs/definitions.md, "Preference losses".
    """
    array = floats("scores", scores, ndim=1)
    if group_size < 1 or not array.size or array.size % group_size:
        raise ValueError(f"`scores` has {array.size} elements, must be a positive multiple of group_size {group_size}")
    winners = []
    for group, row in enumerate(array.reshape(-1, group_size).tolist()):
        winner = definition.best(row)
        if winner is None:
            raise ValueError(f"`scores` of group {group} are all NaN, must have at least one score")
        winners.append(group * group_size + winner)
    return np.array(winners, np.int64)
