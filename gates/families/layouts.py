"""The same numbers in other memory layouts: a clear error is allowed there, other numbers and crashes are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gates.model import Op, Trial

LAYOUTS = ("strided", "read-only", "big-endian")


def values(
    t: Trial, op: Op, inputs: Mapping[str, Any], arrays: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each layout that the subject takes, and what it returns for these arrays in that layout."""
    for layout in LAYOUTS:
        chosen = dict.fromkeys(arrays, layout)
        if t.call(op, layout=chosen, **inputs).kind in {"raised", "unsupported"}:
            continue
        yield f"{layout} input", t.got(op, layout=chosen, **inputs)
