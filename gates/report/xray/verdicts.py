"""Show the verdicts on an update: a line each, and the exit code."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gates.model import Grade, failing
from gates.report.diagnosis import computing
from gates.report.recorded import LOUD, STYLE
from gates.report.wrap import sentence
from gates.results.escape import one_line
from gates.xray.picture import Xray
from gates.xray.verdict import Verdict

INDENT = "  "


def lines(verdicts: Sequence[Verdict], width: int) -> list[Text]:
    """Return a line for each verdict, wrapped: quantity, grade, and what is computed."""
    screen = []
    for verdict in verdicts:
        word = verdict.status.upper() if verdict.status in LOUD else verdict.status
        head = f"{one_line(verdict.quantity)} "
        text = f"{head}{word}: {one_line(told(verdict))}"
        for number, line in enumerate(sentence(text, width - len(INDENT))):
            shown = Text(INDENT + line)
            if not number:
                start = len(INDENT) + len(head)
                shown.stylize(STYLE[verdict.status], start, start + len(word))
            screen.append(shown)
    return screen


def told(verdict: Verdict) -> str:
    """Return what is computed, the numbers, and what to note."""
    parts = [computing(verdict.computes)] if verdict.computes else []
    told_parts = [*parts, verdict.sentence] if verdict.status != "correct" else [verdict.sentence, *parts]
    return "; ".join(filter(None, [*told_parts, verdict.remedy]))


def failed(xray: Xray, fail_on: Grade) -> bool:
    """Return whether the grade of some verdict fails."""
    return any(verdict.status in failing(fail_on) for picture in xray.updates for verdict in picture.verdicts)
