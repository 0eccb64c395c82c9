"""The order of prompts, a function of the seed and the position only, so that a run can resume from a number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer.data.prompts import Prompt
from gates_reference.trainer.data.rows import DataError

SPLIT: Final = 2**64 - 1
"""The epoch number whose permutation chooses the validation rows; no run reaches it."""


def permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Sort the numbers below `count` by their Philox words, key (seed, epoch); ties keep the lower number first."""
    words = np.random.Philox(key=np.array([seed, epoch], np.uint64)).random_raw(count)
    return np.argsort(words, kind="stable").astype(np.int64)


@dataclass(frozen=True, slots=True)
class Split:
    """The prompts for training and for validation; no prompt is in both."""

    train: list[Prompt]
    validation: list[Prompt]


def split(prompts: Sequence[Prompt], validation_rows: int, seed: int) -> Split:
    """Reserve `validation_rows` prompts, chosen by the seed; both parts keep the order of the source.

    Raises:
        DataError: no prompt would be left for training.
    """
    if validation_rows >= len(prompts):
        raise DataError(
            f"data.validation_rows is {validation_rows}, must be below the number of prompts, {len(prompts)}"
        )
    apart = set(permutation(seed, SPLIT, len(prompts))[:validation_rows].tolist())
    return Split([p for n, p in enumerate(prompts) if n not in apart], [p for n, p in enumerate(prompts) if n in apart])


def take(count: int, position: int, wanted: int, seed: int, *, shuffle: bool) -> list[int]:
    """Return the places of the next `wanted` of `count` prompts; every epoch uses each prompt once, in its own order."""
    indices: list[int] = []
    while len(indices) < wanted:
        epoch, start = divmod(position + len(indices), count)
        order = permutation(seed, epoch, count) if shuffle else np.arange(count)
        indices += order[start : start + wanted - len(indices)].tolist()
    return indices
