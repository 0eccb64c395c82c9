"""Numbers and lists as sentences have them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def number(value: float, digits: int = 3) -> str:
    """Return a number with a few digits: 0.0123, 4e-07, −0.5."""
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text.replace("-", "−")
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−", 1) if value < 0 else f"{mantissa}e{int(exponent)}"


def share(value: float) -> str:
    """Return a share: 12%, 0.3%, 4e-7."""
    if value >= 1:
        return f"{value:,.2g} times" if value < 100 else f"{value:,.0f} times"
    return number(value, 1) if value < 1e-3 else f"{100 * value:.2g}%" if value < 0.995 else "100%"  # not 1e+02%


def plural(count: int, word: str, many: str = "") -> str:
    """Return a count with its word: 1 row, 3 rows."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def some(names: Sequence[object], most: int = 4) -> str:
    """Return the first of some names: 1, 2, 5 and 3 more."""
    first = [str(name) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(first)} and {len(names) - most} more"
    return " and ".join([", ".join(first[:-1]), first[-1]]) if len(first) > 1 else "".join(first)


def rows(indices: Sequence[int]) -> str:
    """Return row numbers, from 1: row 3; rows 1, 2 and 5."""
    return f"{'row' if len(indices) == 1 else 'rows'} {some([index + 1 for index in indices])}"


def plain(value: float) -> float | None:
    """Return a number as JSON has it."""
    return float(value) if math.isfinite(value) else None
