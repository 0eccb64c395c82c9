"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Fn = Callable[..., Any]


def last_bit_of_one_lane(original: Fn) -> Fn:
    """Flip the last bit of one byte in every variant that is not scalar."""

    def mistaken(operation: Any, inputs: Any, isa: str, threads: int) -> Any:
        found = original(operation, inputs, isa, threads).copy()
        found[(found.size // 2) & ~7] ^= isa != "scalar"  # the low byte of an element of 4 or 8 bytes
        return found

    return mistaken


def last_bit_with_threads(original: Fn) -> Fn:
    """Flip the last bit of one byte where more than two threads work."""

    def mistaken(operation: Any, inputs: Any, isa: str, threads: int) -> Any:
        found = original(operation, inputs, isa, threads).copy()
        found[0] ^= threads > 2
        return found

    return mistaken
