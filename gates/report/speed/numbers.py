"""Format numbers for people: three digits, intervals in brackets, units; and read the sizes in the name of a shape."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from gates.results.speed_records import Interval

LEAST = 1e-6  # smaller shares are shown as less than this


def short(value: float) -> str:
    """Format a number with three digits and commas between thousands."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return _plain(value)


def _plain(value: float) -> str:
    """Format three digits without an exponent."""
    text = f"{value:.3g}"
    if "e" in text:
        text = f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"
    return text


def interval(estimate: Interval) -> str:
    """Format an estimate with its 95% interval."""
    return f"{short(estimate.value)} [{short(estimate.low)}–{short(estimate.high)}]"


def span(values: Sequence[float]) -> str:
    """Format the range of some numbers, a single number if its ends look alike."""
    ends = dict.fromkeys((short(min(values)), short(max(values))))
    return "–".join(ends)


def intervals(estimates: Sequence[Interval]) -> str:
    """Format the range of the estimates, with the outermost ends of their intervals in brackets."""
    if len(estimates) == 1:
        return interval(estimates[0])
    ends = span([min(estimate.low for estimate in estimates), max(estimate.high for estimate in estimates)])
    return f"{span([estimate.value for estimate in estimates])} [{ends}]"


def seconds(value: float) -> str:
    """Format a duration in seconds, milliseconds or microseconds."""
    if value < 0:
        return f"−{seconds(-value)}"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1.0:
            return f"{short(value * factor)} {unit}"
    return f"{short(value * 1e6)} µs"


def percent(share: float) -> str:
    """Format a share with two digits, in percent, or as a multiple such as 78× from 10 on."""
    if share < 0:
        return f"−{percent(-share)}"
    if share >= 10:
        return f"{short(float(f'{share:.2g}'))}×"
    if share < LEAST:
        return f"less than {100 * LEAST:.4f}%"
    value = float(f"{100 * share:.2g}")
    return f"{value:.10f}".rstrip("0").rstrip(".") + "%"


def dimensions(shape: str) -> tuple[int, ...]:
    """Return the numbers in the name of a shape, such as `16x151936-peaked` or `1,000 sequences`, in order."""
    return tuple(int(number) for number in re.findall(r"\d+", re.sub(r"(?<=\d)[,_](?=\d{3})", "", shape)))


def size(shape: str) -> int:
    """Return the number of elements of a shape: the product of its first two dimensions, or its only one."""
    return math.prod(dimensions(shape)[:2])


def titled(shape: str) -> str:
    """Format a shape for people: 16 × 4."""
    return re.sub(r"(?<=\d)x(?=\d)", " × ", re.sub(r"\d{5,}", lambda digits: f"{int(digits[0]):,}", shape))
