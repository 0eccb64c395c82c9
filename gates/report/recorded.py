"""What `gates judge` prints of a recorded step: one screen, or JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from gates.errors import ExitCode
from gates.model import GRADES, Grade, failing
from gates.recorded.finding import ORDER, Finding
from gates.report.screen import MARGIN, STYLES
from gates.report.wrap import sentence, wrapped
from gates.results.escape import one_line

STATUS = 13  # columns of the word for a status
NAME = 26  # columns of a quantity's name
REASON = 4  # lines at most
LOUD = frozenset(("wrong", "fragile", "imprecise", "cannot tell"))
STYLE = {**STYLES, "cannot tell": "yellow", "finding": "blue", "unsupported": "dim"}


def exit_code(found: Sequence[Finding], fail_on: Grade) -> ExitCode:
    """Return 1 if a grade fails, 3 if nothing was judged, else 0."""
    if any(one.status in failing(fail_on) for one in found):
        return ExitCode.FAILED
    return ExitCode.HELD if any(one.status in GRADES for one in found) else ExitCode.NOTHING


def record(name: str, path: str, found: Sequence[Finding], code: ExitCode) -> dict[str, Any]:
    """Return the verdicts as JSON; a number that JSON does not have is text."""
    quantities = [
        {
            "quantity": one.quantity,
            "grade": one.status,
            "reason": one.reason,
            "computes": one.computes,
            "strength": one.strength,
            "numbers": _plain(one.numbers),
        }
        for one in found
    ]
    return {"step": name, "file": path, "quantities": quantities, "exit_code": int(code)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def lines(name: str, found: Sequence[Finding], code: ExitCode, width: int, seconds: float | None = None) -> list[Text]:
    """Return the screen: what is not correct first, then the rest, the exit code last."""
    ordered = sorted(found, key=lambda one: ORDER.index(one.status))
    shown = [one for one in ordered if one.status != "unsupported"]
    screen = [_head(name, shown, width, seconds)]
    for one in shown:
        screen += _row(one, width)
    screen += _left([one for one in ordered if one.status == "unsupported"], width)
    return [*screen, Text(_ending(shown, code), style="bold")]


def _counts(found: Sequence[Finding]) -> list[str]:
    statuses = [one.status for one in found if one.status != "finding"]
    return [f"{statuses.count(status)} {status}" for status in ORDER if status in statuses]


def _head(name: str, shown: Sequence[Finding], width: int, seconds: float | None) -> Text:
    judged = sum(one.status in GRADES for one in shown)
    quantities = "1 quantity" if judged == 1 else f"{judged} quantities"
    line = " · ".join([one_line(name), f"{quantities} judged", *_counts(shown)])
    time = "" if seconds is None else f"{seconds:.1f} s"
    room = width - cell_len(line) - len(time)
    return Text(line + (" " * room + time if time and room >= 2 else ""), style="bold")


def _row(one: Finding, width: int) -> list[Text]:
    column = len(MARGIN) + STATUS + NAME + 2
    room = max(20, width - column)
    text = sentence(one_line(_computes(one)), room, REASON) if one.computes else []
    text += sentence(one_line(one.reason), room, REASON)
    text += sentence(one_line(one.strength), room, REASON) if one.strength else []
    first = Text(MARGIN)
    word = one.status.upper() if one.status in LOUD else one.status
    first.append(f"{word:{STATUS}}", style=STYLE[one.status])
    first.append(one_line(one.quantity))
    if first.cell_len + 2 <= column:
        first.append(" " * (column - first.cell_len) + text.pop(0))
    return [first, *(Text(" " * column + line) for line in text)]


def _computes(one: Finding) -> str:
    return one.computes if one.computes.startswith("cannot tell") else f"computes: {one.computes}"


def _left(unsupported: Sequence[Finding], width: int) -> list[Text]:
    """Return what was not judged, by reason."""
    reasons: dict[str, list[str]] = {}
    for one in unsupported:
        reasons.setdefault(one.reason, []).append(one.quantity)
    pieces = [one_line(f"{', '.join(names)} ({reason})") for reason, names in reasons.items()]
    found = []
    for number, line in enumerate(wrapped(pieces, width - len(MARGIN) - STATUS, " · ")):
        found.append(Text.assemble(MARGIN, ("" if number else "unsupported").ljust(STATUS), line, style="dim"))
    return found


def _ending(shown: Sequence[Finding], code: ExitCode) -> str:
    counts = _counts(shown)
    if code == ExitCode.NOTHING:
        return f"exit {int(code)}: nothing was judged{f', {counts[0]}' if counts else ''}"
    return f"exit {int(code)}: {', '.join(counts)}"
