"""Mutations of the random generator; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation
from gates.subjects.numpy_baseline import sampling


@mutation
def seven_rounds(original: Fn, state: Any, key: Any, count: Any) -> Any:
    """Stop after seven rounds, the fewest that pass BigCrush."""
    return original(state, key, count - 3)


@mutation
def words_swapped(original: Fn, *arguments: Any) -> Any:
    """Return the two halves of the state in the other order."""
    first, second, third, fourth = original(*arguments)
    return [third, fourth, first, second]


@mutation
def key_not_bumped(original: Fn, state: Any, key: Any, count: int) -> Any:
    """Use the same key in every round."""
    for _ in range(count):
        state = original(state, key, 1)
    return state


@mutation
def fields_permuted(original: Fn, seed: Any, round_: Any, prompt: Any, sample: Any, token: Any) -> Any:
    """Exchange prompt and sample in the counter."""
    return original(seed, round_, sample, prompt, token)


@mutation
def round_forgotten(original: Fn, seed: Any, round_: Any, *rest: Any) -> Any:
    """Draw the same numbers in every round."""
    return original(seed, 0 * np.asarray(round_), *rest)


@mutation
def seed_halves_swapped(original: Fn, seed: Any, *rest: Any) -> Any:
    """Put the high word of the seed first."""
    return original((seed >> 32) | ((seed & 0xFFFFFFFF) << 32), *rest)


@mutation
def one_word(original: Fn, pair: Any) -> Any:
    """Use 32 bits instead of 53."""
    return original(np.stack([pair[..., 0], 0 * pair[..., 1]], axis=-1))


@mutation
def coin_of_the_uniform(_original: Fn, **inputs: Any) -> Any:
    """Use the uniform's words for the coin, so that XTC acts on the smallest draws."""
    return sampling.uniforms(**inputs)
