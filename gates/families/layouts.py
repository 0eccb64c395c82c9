"""Call an op with the same numbers in other memory layouts.

A subject may refuse a layout with a clear error; other results and crashes are failures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gates.model import Op, Trial, UnsupportedError

LAYOUTS = ("strided", "read-only", "big-endian")


def values(
    t: Trial, op: Op, inputs: Mapping[str, Any], arrays: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each layout that the subject accepts, with its outputs for these arrays in that layout."""
    for layout in LAYOUTS:
        try:
            outcome = t.call(op, layout=dict.fromkeys(arrays, layout), **inputs)
        except UnsupportedError:
            continue
        if outcome.kind != "raised":
            yield f"{layout} input", t.checked(op, outcome, inputs)
