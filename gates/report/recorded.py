"""Show the verdicts of a recorded step (`gates judge`), as one screen or as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from gates.errors import ExitCode
from gates.model import COSTLY, GRADES, Grade, failing
from gates.recorded.finding import ORDER, Finding
from gates.report.diagnosis import computing
from gates.report.screen import MARGIN, STYLES
from gates.report.wrap import beside, sentence, wrapped
from gates.results.escape import one_line

STATUS = 13  # columns of the word for a status
NAME = 26  # columns of a quantity's name
REASON = 4  # lines at most
LOUD = frozenset((*COSTLY, "cannot tell"))
STYLE = {**STYLES, "cannot tell": "yellow", "finding": "blue", "unsupported": "dim"}


def exit_code(findings: Sequence[Finding], fail_on: Grade) -> ExitCode:
    """Return 1 if a grade fails, 3 if nothing was judged, else 0."""
    if any(finding.status in failing(fail_on) for finding in findings):
        return ExitCode.FAILED
    return ExitCode.HELD if any(finding.status in GRADES for finding in findings) else ExitCode.NOTHING


def record(name: str, path: str, findings: Sequence[Finding], code: ExitCode) -> dict[str, Any]:
    """Return the verdicts as JSON; NaN and infinity are text."""
    quantities = [
        {
            "quantity": finding.quantity,
            "grade": finding.status,
            "reason": finding.reason,
            "computes": finding.computes,
            "declare": finding.declare,
            "strength": finding.strength,
            "numbers": _plain(finding.numbers),
        }
        for finding in findings
    ]
    return {"step": name, "file": path, "quantities": quantities, "exit_code": int(code)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def lines(
    name: str, findings: Sequence[Finding], code: ExitCode, width: int, seconds: float | None = None
) -> list[Text]:
    """Return the screen: what is not correct first, then the rest, the exit code last."""
    ordered = sorted(findings, key=lambda finding: ORDER.index(finding.status))
    shown = [finding for finding in ordered if finding.status != "unsupported"]
    screen = _head(name, shown, width, seconds)
    for finding in shown:
        screen += _row(finding, width)
    screen += _left([finding for finding in ordered if finding.status == "unsupported"], width)
    return [*screen, Text(_ending(shown, code), style="bold")]


def _counts(findings: Sequence[Finding]) -> list[str]:
    statuses = [finding.status for finding in findings if finding.status != "finding"]
    return [f"{statuses.count(status)} {status}" for status in ORDER if status in statuses]


def _head(name: str, shown: Sequence[Finding], width: int, seconds: float | None) -> list[Text]:
    judged = sum(finding.status in GRADES for finding in shown)
    quantities = "1 quantity" if judged == 1 else f"{judged} quantities"
    head = wrapped([one_line(name), f"{quantities} judged", *_counts(shown)], width, " · ")
    time = "" if seconds is None else f"{seconds:.1f} s"
    room = width - cell_len(head[-1]) - len(time)
    head[-1] += " " * room + time if time and room >= 2 else ""
    return [Text(line, style="bold") for line in head]


def _row(finding: Finding, width: int) -> list[Text]:
    column, most = beside(len(MARGIN) + STATUS + NAME + 2, width, REASON)
    room = width - column
    rest = sentence(one_line(_computes(finding)), room, most) if finding.computes else []
    rest += sentence(one_line(finding.reason), room, most)
    rest += sentence(one_line(finding.strength), room, most) if finding.strength else []
    first = Text(MARGIN)
    word = finding.status.upper() if finding.status in LOUD else finding.status
    first.append(f"{word:{STATUS}}", style=STYLE[finding.status])
    first.append(one_line(finding.quantity))
    if first.cell_len + 2 <= column:
        first.append(" " * (column - first.cell_len) + rest.pop(0))
    return [first, *(Text(" " * column + line) for line in rest)]


def _computes(finding: Finding) -> str:
    words = computing(finding.computes)
    return f"{words}; {finding.declare}" if finding.declare else words


def _left(unsupported: Sequence[Finding], width: int) -> list[Text]:
    """Return the quantities that were not judged, by reason."""
    reasons: dict[str, list[str]] = {}
    for finding in unsupported:
        reasons.setdefault(finding.reason, []).append(finding.quantity)
    pieces = [one_line(f"{', '.join(names)} ({reason})") for reason, names in reasons.items()]
    texts = []
    room = width - len(MARGIN) - STATUS
    whole = all(cell_len(piece) <= room for piece in pieces)
    for number, line in enumerate(wrapped(pieces, room, " · ") if whole else sentence(" · ".join(pieces), room)):
        texts.append(Text.assemble(MARGIN, ("" if number else "unsupported").ljust(STATUS), line, style="dim"))
    return texts


def _ending(shown: Sequence[Finding], code: ExitCode) -> str:
    counts = _counts(shown)
    if code == ExitCode.NOTHING:
        return f"exit {int(code)}: nothing was judged{f', {counts[0]}' if counts else ''}"
    return f"exit {int(code)}: {', '.join(counts)}"
