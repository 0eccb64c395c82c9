"""The bookkeeping of a batched rollout: which prompt a row has, which draws, and when it ends."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def prompt_of_row(rows: Ints, prompts: int, samples: int) -> Ints:
    """The (prompt index, sample index) (R, 2) of rows (R,): prompt-major, all samples of a prompt in a row.

    Raises:
        ValueError: a row is outside the table of `prompts` x `samples`.
    """
    if ((rows < 0) | (rows >= prompts * samples)).any():
        raise ValueError(f"rows are {rows.min()}..{rows.max()}, must be in 0..{prompts * samples - 1}")
    return np.stack([rows // samples, rows % samples], axis=1)


def draw_index(pairs: Ints, positions: Ints) -> Ints:  # noqa: ARG001 - the position is what must not matter
    """The (prompt, sample) keys (R, 2) of the rows' draws, whatever the rows' positions (R,) in the batch."""
    return pairs


def finished(tokens: NDArray[np.int32], eos_ids: Ints, before: Flags) -> Flags:
    """Which rows (R,) have ended after these tokens (R,): those that had, and those with an end token now."""
    return before | np.isin(tokens, eos_ids)
