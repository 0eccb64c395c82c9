"""What DAPO does to a batch before its loss: groups without a difference are dropped, over-long completions are penalised."""

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import dynamic_sampling as definition
from gates_reference.oracle.inputs import Bools, Floats, choice, floats, integers

CONVENTIONS = ("accuracy", "total")


def keep_groups(
    rewards: npt.ArrayLike, weights: npt.ArrayLike, group_size: int, *, convention: str, accuracy: int | None = None
) -> Bools:
    """A group is kept where its largest scored reward exceeds its smallest, compared exactly.

    Args:
        rewards: (R, F), prompt-major, one column for each function, before penalties; NaN is not scored.
        weights: (F,).
        group_size: G, divides R.
        convention: "accuracy" (the accuracy's column alone) or "total" (the weighted sum; NaN counts 0 in it, and a row
            is unscored only if all its rewards are NaN).
        accuracy: the column of the accuracy; "accuracy" only.

    Returns:
        (P,) bool.

    Raises:
        ValueError: shapes that do not fit, an unknown convention, no column for "accuracy".

    Source: DAPO (arXiv 2503.14476), eq. 11: 0 < number of right completions < G.
    """
    choice("convention", convention, CONVENTIONS)
    columns = floats("rewards", rewards, ndim=2)
    factors = floats("weights", weights, shape=columns.shape[1:])
    if group_size < 1 or not len(columns) or len(columns) % group_size:
        raise ValueError(f"`rewards` has {len(columns)} rows, must be a positive multiple of group_size {group_size}")
    if convention == "accuracy":
        if accuracy is None or not 0 <= accuracy < columns.shape[1]:
            raise ValueError(f"`accuracy` is {accuracy}, must be a column of {columns.shape[1]}")
        scores = columns[:, accuracy]
    else:
        scores = definition.total_scores(columns, factors)
    return np.array([definition.differs(group) for group in scores.reshape(-1, group_size)], np.bool_)


def overlong_penalty(lengths: npt.ArrayLike, *, limit: int, buffer: int) -> Floats:
    """A penalty is 0 if n <= L_max - L_c, (L_max - L_c - n) / L_c up to L_max, and -1 above.

    Args:
        lengths: (R,) completion tokens n.
        limit: L_max, in tokens.
        buffer: L_c, in tokens, from 1 to L_max.

    Returns:
        (R,) float64, from -1 to 0.

    Raises:
        ValueError: a buffer outside [1, L_max].

    Source: DAPO (arXiv 2503.14476), eq. 13.
    """
    sizes = integers("lengths", lengths, least=0)
    if not 1 <= buffer <= limit:
        raise ValueError(f"`buffer` is {buffer}, must be from 1 to `limit` = {limit}")
    return np.array([definition.overlong_penalty(n, limit, buffer) for n in sizes.tolist()], np.float64)


def completion_mask(lengths: npt.ArrayLike, ended: npt.ArrayLike, *, width: int, mask_truncated: bool) -> Bools:
    """Which slots of a batch are in the loss.

    Args:
        lengths: (B,) completion tokens, the end token included.
        ended: (B,) bool, whether a completion has an end token; without one it is truncated.
        width: T, the slots of a row.
        mask_truncated: whether truncated completions are left out.

    Returns:
        (B, T) bool.

    Raises:
        ValueError: shapes that do not fit, or a length above `width`.

    Source: TRL's GRPOConfig, `mask_truncated_completions`.
    """
    sizes = integers("lengths", lengths, least=0, below=width + 1)
    ends = np.asarray(ended)
    if ends.dtype != np.bool_ or ends.shape != sizes.shape or sizes.ndim != 1:
        raise ValueError(f"`ended` has dtype {ends.dtype} and shape {ends.shape}, must be bool and {sizes.shape}")
    rows = [
        [definition.scored(t, n, ended=end, mask_truncated=mask_truncated) for t in range(width)]
        for n, end in zip(sizes.tolist(), ends.tolist(), strict=True)
    ]
    return np.array(rows, np.bool_)
