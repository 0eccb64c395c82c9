"""Inputs of the cases of whole updates: which rows each trainer is given, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.model import Recipe

GROUPS, ROWS = 3, 4  # prompts, and rows of each
REWARDED = ("grpo", "rloo")  # trainers of groups with rewards
PAIRS = ("dpo", "orpo", "cpo", "simpo")  # of preference pairs: the first row of a prompt is chosen, the second rejected
SCORED_PAIRS = ("online_dpo",)  # of pairs whose rewards say which row is chosen
LABELLED = ("kto",)  # of single rows, desirable where the reward is 1, else undesirable where it is 0
SUPERVISED = ("sft",)  # of single rows, without rewards
EOS = 2  # of the tiny models; another model's rows are then cut by the limit
LONG = 9  # tokens of a row that the limit cut


def size(trainer: str) -> int:
    """Return how many rows of a prompt a trainer takes."""
    return ROWS if trainer in REWARDED else 2 if trainer in (*PAIRS, *SCORED_PAIRS) else 1


def inputs(
    rng: np.random.Generator,
    *,
    trainer: str,
    settings: Mapping[str, Any],
    micro: int,
    updates: int,
    prompts: int | None = None,
    equal_lengths: bool = False,
) -> dict[str, Any]:
    """Return the inputs of a case: prompts and completions of many lengths, the last of several groups with equal rewards.

    Some completions end, some are cut by the limit, and no two are equal. With equal lengths there is no padding.
    """
    rows = size(trainer)
    count = GROUPS * ROWS // rows if prompts is None else prompts
    total = count * rows

    def ids(length: int) -> list[int]:
        return [int(token) for token in rng.integers(20, 300, length)]

    before = [ids(5 if equal_lengths else int(length)) for length in rng.integers(3, 7, count)]
    lengths = [int(length) for length in rng.integers(2, LONG, total)]
    completions = [
        ids(LONG) if equal_lengths or row % 3 == 0 else [*ids(length), EOS] for row, length in enumerate(lengths)
    ]
    return {
        "model": Recipe("model", {}),
        "trainer": trainer,
        "settings": dict(settings),
        "prompts": before,
        "completions": completions,
        "rewards": _rewards(rng, trainer, count, rows),
        "group_size": rows,
        "updates": updates,
        "micro_batch_rows": micro,
    }


def _rewards(rng: np.random.Generator, trainer: str, prompts: int, rows: int) -> Any:
    """Return rewards that differ within groups, but for the last of several; labels of KTO; None without rewards."""
    rewards = rng.choice(np.arange(-4, 5) / 4, prompts * rows).astype(np.float32)
    if trainer in REWARDED:
        if prompts > 1:
            rewards[-rows:] = rewards[-1]
        return rewards
    if trainer in SCORED_PAIRS:  # both orders, and no ties
        first = rng.permutation(prompts) % 2
        return np.stack([first, 1 - first], axis=1).astype(np.float32).reshape(-1)
    return (rng.permutation(prompts) % 2).astype(np.float32) if trainer in LABELLED else None
