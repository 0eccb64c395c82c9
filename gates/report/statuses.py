"""The orders in which reports show statuses, all from that of the grades in `gates.model`, and their symbols."""

from __future__ import annotations

from gates.model import COSTLY, NOT_JUDGED, STATUSES, WORST_FIRST
from gates.report.labels import DEPARTS

_WAIVED = WORST_FIRST.index("waived")
FAILED: tuple[str, ...] = (*WORST_FIRST[:_WAIVED], DEPARTS)  # what did not hold, worst first
SHOWN_WORST_FIRST: tuple[str, ...] = (*FAILED, *WORST_FIRST[_WAIVED:])
BY_GRADE: tuple[str, ...] = (  # of ops: the grades, then what has none
    *COSTLY,
    "timeout",
    "error",
    DEPARTS,
    "waived",
    "correct",
    "hardening",
)
COUNTED: tuple[str, ...] = (*BY_GRADE, *(status for status in STATUSES if status in NOT_JUDGED))
BEST_FIRST: tuple[str, ...] = (*STATUSES, DEPARTS)  # on the page, whose rows hold its numbers
SYMBOLS = {
    "correct": "✓",
    "imprecise": "≈",
    "fragile": "△",
    "raises": "⚡",
    "differs": "≠",
    "hardening": "▫",
    "wrong": "✗",
    "timeout": "⏱",
    DEPARTS: "≢",
    "error": "!",
    "skipped": "–",
    "unsupported": "·",
    "not asked": "·",
    "waived": "⚑",
}
