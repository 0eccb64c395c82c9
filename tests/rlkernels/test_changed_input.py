"""Another thread that writes to an input during a call: a result or an ordinary error, never a panic."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from calls import usual

import rlkernels
from gates.families.generators import generators
from gates_reference.kernels import KERNELS

Array = np.ndarray[Any, Any]

WORDS = (1 << 13,)
LARGE: dict[str, Any] = {
    "shape": (128, 256),
    "groups": (2048, 8),
    "rows": 64,
    "size": 512,
    "count": 20_000,
    "room": 100,
}
LEADING = {"philox4x32_10": (WORDS, WORDS), "uniforms": "rows"}  # else 64 rows of logits
LAYOUTS = ("holes", "lengths", "flat")

#: Calls that are long enough to release the GIL, by function, with every layout of tokens.
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{kernel}-{layout}": (kernel, usual(kernel, **LARGE, leading=LEADING.get(kernel, (64,)), layout=layout))
    for kernel in KERNELS
    if kernel != "xtc_coins"  # which is `uniforms` with other words
    for layout in (LAYOUTS if "layout" in generators()[kernel].factors else LAYOUTS[:1])
}
CALLS["pack_sequences-best"] = (
    "pack_sequences",
    usual("pack_sequences", **LARGE, strategy="best-fit-decreasing", over_long="truncate"),
)


def _others(array: Array) -> list[Array]:
    """What a writer puts in the place of an array: other numbers that are legal, and some that are not."""
    if array.dtype == bool:
        return [np.ones_like(array), np.zeros_like(array)]
    if array.dtype.kind in "iu":
        return [array[::-1].copy(), np.zeros_like(array), np.full_like(array, np.iinfo(array.dtype).max)]
    return [array[::-1].copy(), np.full_like(array, np.nan), np.full_like(array, -np.inf), np.zeros_like(array)]


@contextmanager
def _writer(arrays: list[Array]) -> Iterator[None]:
    """A thread that writes to the arrays until the block ends."""
    kept = [array.copy() for array in arrays]
    others = [[*_others(array), array.copy()] for array in arrays]
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            for array, values in zip(arrays, others, strict=True):
                array[...] = values[number % len(values)]
            number += 1
            time.sleep(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for array, before in zip(arrays, kept, strict=True):
            array[...] = before


def test_calls_are_long() -> None:
    """The largest array of each call has 8192 elements at least, except where a gate's case is all that there is."""
    own = {name: inputs for name, (kernel, inputs) in CALLS.items() if "case" not in generators()[kernel].factors}
    assert len(own) >= 28
    assert not [name for name, inputs in own.items() if max(map(np.size, inputs.values())) < 8192]


@pytest.mark.parametrize("name", CALLS)
def test_never_a_panic(name: str) -> None:
    """A result, a ValueError that the values of the moment deserve, or a RuntimeError that says what happened."""
    function, inputs = CALLS[name]
    arrays = [value for value in inputs.values() if isinstance(value, np.ndarray)]
    with _writer(arrays):
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            try:
                getattr(rlkernels, function)(**inputs)
            except ValueError:
                continue
            except RuntimeError as error:
                assert "an input array changed during the call" in str(error)  # noqa: PT017
