"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gates.subjects.numpy_baseline import sampling

Fn = Callable[..., Any]


def seven_rounds(original: Fn) -> Fn:
    """Stop after seven rounds, the fewest that pass BigCrush."""
    return lambda state, key, count: original(state, key, count - 3)


def words_swapped(original: Fn) -> Fn:
    """Return the two halves of the state in the other order."""

    def mistaken(*arguments: Any) -> Any:
        first, second, third, fourth = original(*arguments)
        return [third, fourth, first, second]

    return mistaken


def key_not_bumped(original: Fn) -> Fn:
    """Use the same key in every round."""

    def mistaken(state: Any, key: Any, count: int) -> Any:
        for _ in range(count):
            state = original(state, key, 1)
        return state

    return mistaken


def fields_permuted(original: Fn) -> Fn:
    """Put prompt and sample into each other's place of the counter."""
    return lambda seed, round_, prompt, sample, token: original(seed, round_, sample, prompt, token)


def round_forgotten(original: Fn) -> Fn:
    """Draw the same numbers in every round."""
    return lambda seed, round_, *rest: original(seed, 0 * np.asarray(round_), *rest)


def seed_halves_swapped(original: Fn) -> Fn:
    """Put the high word of the seed first."""
    return lambda seed, *rest: original((seed >> 32) | ((seed & 0xFFFFFFFF) << 32), *rest)


def one_word(original: Fn) -> Fn:
    """Use 32 bits instead of 53."""

    def mistaken(pair: Any) -> Any:
        return original(np.stack([pair[..., 0], 0 * pair[..., 1]], axis=-1))

    return mistaken


def coin_of_the_uniform(original: Fn) -> Fn:
    """Take the coin from the words of the uniform, so that XTC acts on the smallest draws."""
    del original

    def mistaken(**inputs: Any) -> Any:

        return sampling.uniforms(**inputs)

    return mistaken
