"""What a reward function sees of a completion."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reference.trainer.data.rows import Row


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion: text without the end token, tokens with it, and where it belongs.

    `group` numbers the prompts of the step; the samples of a group stand together.
    """

    prompt: str
    completion: str
    tokens: int
    answer: Any
    group: int
    row: Row


Reward = Callable[[Sequence[Sample]], Sequence[float | None]]
"""One number for each sample, in their order; None or NaN is "not scored"."""
