"""The input and the type of reward functions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gates_reference.trainer.data.rows import Row


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion with its prompt and row; `completion` is without the end token, `tokens` counts it.

    `group` numbers the prompts of the step; the samples of a group are consecutive.
    """

    prompt: str
    completion: str
    tokens: int
    answer: Any
    group: int
    row: Row


Reward = Callable[[Sequence[Sample]], Sequence[float | None]]
"""A function of samples to one number each, in the same order; None or NaN means "not scored"."""
