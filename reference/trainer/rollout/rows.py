"""The bookkeeping of a batched rollout: a row's prompt, the key of its draws, and when it ends."""

import numpy as np
from numpy.typing import NDArray

from reference.trainer.rollout import table

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def prompt_of_row(rows: Ints, prompts: int, samples: int) -> Ints:
    """Return the (prompt index, sample index) (R, 2) of row numbers (R,), which count prompt-major.

    Raises:
        ValueError: a row is outside the table of `prompts` x `samples`.
    """
    if ((rows < 0) | (rows >= prompts * samples)).any():
        raise ValueError(f"rows are {rows.min()}..{rows.max()}, must be in 0..{prompts * samples - 1}")
    return np.stack([rows // samples, rows % samples], axis=1)


def prompts_of(request: table.Request) -> Ints:
    """Return the prompt index of every requested row (R,)."""
    numbers = request.rows[:, 0] * request.samples + request.rows[:, 1]
    return prompt_of_row(numbers, len(request.prompts), request.samples)[:, 0]


def draw_index(pairs: Ints, positions: Ints) -> Ints:  # noqa: ARG001 - the position is what must not matter
    """Return the (prompt, sample) keys (R, 2) of the rows' draws; they do not depend on the positions (R,) in the batch."""
    return pairs


def finished(tokens: NDArray[np.int32], eos_ids: Ints, before: Flags) -> Flags:
    """Return which rows (R,) have ended after these tokens (R,): before, or with an end token now."""
    return before | np.isin(tokens, eos_ids)
