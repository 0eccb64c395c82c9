"""Mutations of the comparison of instruction sets and threads; loaded in workers only."""

from __future__ import annotations

from typing import Any

from gates.families.patching import Fn, mutation


@mutation
def last_bit_of_one_lane(original: Fn, operation: Any, inputs: Any, isa: str, threads: int) -> Any:
    """Flip the last bit of one byte in every variant that is not scalar."""
    found = original(operation, inputs, isa, threads).copy()
    found[(found.size // 2) & ~7] ^= isa != "scalar"  # the low byte of an element of 4 or 8 bytes
    return found


@mutation
def last_bit_with_threads(original: Fn, operation: Any, inputs: Any, isa: str, threads: int) -> Any:
    """Flip the last bit of one byte in results of more than two threads."""
    found = original(operation, inputs, isa, threads).copy()
    found[0] ^= threads > 2
    return found
