"""Numbers in words: three digits, intervals in brackets, and the sizes that a shape names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from gates.results.speed_records import Interval

LEAST = 1e-6  # a share below it is not worth its digits


def short(value: float) -> str:
    """Return a number with three digits, thousands with commas."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return _plain(value)


def _plain(value: float) -> str:
    """Return three digits without an exponent."""
    text = f"{value:.3g}"
    if "e" in text:
        text = f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"
    return text


def interval(found: Interval) -> str:
    """Return an estimate with its 95% interval."""
    return f"{short(found.value)} [{short(found.low)}–{short(found.high)}]"


def span(values: Sequence[float]) -> str:
    """Return the least and the greatest of some numbers, or the one that they are."""
    ends = dict.fromkeys((short(min(values)), short(max(values))))
    return "–".join(ends)


def intervals(found: Sequence[Interval]) -> str:
    """Return the least and the greatest estimate, and in brackets the outermost ends of their intervals."""
    if len(found) == 1:
        return interval(found[0])
    ends = span([min(one.low for one in found), max(one.high for one in found)])
    return f"{span([one.value for one in found])} [{ends}]"


def seconds(value: float) -> str:
    """Return a duration in the unit that suits it."""
    if value < 0:
        return f"−{seconds(-value)}"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1.0:
            return f"{short(value * factor)} {unit}"
    return f"{short(value * 1e6)} µs"


def percent(share: float) -> str:
    """Return a share with two digits, as percent or as so many times."""
    if share < 0:
        return f"−{percent(-share)}"
    if share >= 10:
        return f"{short(float(f'{share:.2g}'))} times"
    if share < LEAST:
        return f"less than {100 * LEAST:.4f}%"
    value = float(f"{100 * share:.2g}")
    return f"{value:.10f}".rstrip("0").rstrip(".") + "%"


def dimensions(shape: str) -> tuple[int, ...]:
    """Return the numbers that a shape such as `16x151936-peaked` or `1,000 sequences` names, in order."""
    return tuple(int(number) for number in re.findall(r"\d+", re.sub(r"(?<=\d)[,_](?=\d{3})", "", shape)))


def size(shape: str) -> int:
    """Return how many numbers a shape has: the product of its first two dimensions, or its only one."""
    return math.prod(dimensions(shape)[:2])


def titled(shape: str) -> str:
    """Return a shape as people write it: 16 × 4."""
    return re.sub(r"(?<=\d)x(?=\d)", " × ", re.sub(r"\d{5,}", lambda found: f"{int(found[0]):,}", shape))
