"""Render a recorded run for GitHub Actions: annotations, and a step summary within the size limit."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gates.model import failing
from gates.report import smallest
from gates.report.diagnosis import named
from gates.report.grades import EVERY, Grades, OpGrade
from gates.report.screen import by_op
from gates.report.sources import source
from gates.results.escape import visible
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, Location

SUMMARY_LIMIT = 1024 * 1024  # bytes of one step's summary; GitHub drops a larger one
SUMMARY_FILE = "GITHUB_STEP_SUMMARY"


def commands(runs: Iterable[Results]) -> list[str]:
    """Return workflow commands, one per op and subject; errors first, since GitHub shows ten of each type.

    A failure that fails the run is an error; a milder grade or a waived failure is a warning.
    """
    errors: list[str] = []
    warnings: list[str] = []
    for run in map(named, runs):
        problems = run.summary.problems if run.summary else [run.state]
        errors += [_command("error", "gates", words) for words in problems]
        inputs = by_op(run.counterexamples, {(v.gate, v.subject, v.case): v.op for v in run.judged})
        for grade in Grades.of_runs([run]).grades():
            if grade.status == "correct":
                continue
            fails = grade.verdict.status in {*failing(run.header.fail_on), "error"}
            level, commands_ = ("error", errors) if fails else ("warning", warnings)
            title = f"{grade.subject} · {grade.status if grade.op == EVERY else grade.op}"
            item = inputs.get((grade.subject, grade.op))
            where = source(run, grade.subject, grade.op)
            commands_.append(_command(level, title, _words(grade, item, run.path.parent), where))
        skipped = Counter((v.subject, v.reason) for v in run.verdicts if v.status == "skipped")
        for (subject, reason), count in sorted(skipped.items()):
            warnings.append(_command("warning", f"{subject} · skipped", f"{reason} ({count} cases)"))
    return [*errors, *warnings]


def _words(grade: OpGrade, small: CounterexampleRecord | None, folder: Path) -> str:
    """Return the verdict that counts and an input on which the op fails, each on a line."""
    verdict = grade.verdict
    if grade.op == EVERY:
        return f"{verdict.reason} ({grade.cases} cases)"
    words = f"{grade.status} in {grade.count}; {verdict.gate} · {verdict.case}: {verdict.reason}"
    return f"{words}\n{smallest.sentence(small, folder)}" if small and smallest.shrunk(small) else words


def _command(level: str, title: str, message: str, where: Location | None = None) -> str:
    """Return one workflow command, escaped as GitHub's own toolkit does (`command.ts`)."""
    data = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    place = f"file={_property(where.file)},line={where.line}," if where else ""
    return visible(f"::{level} {place}title={_property(title)}::{data}")


def _property(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")


def cut(text: str, room: int) -> str:
    """Return at most `room` bytes of the text, cut at the end of a line, with a notice of how much is missing."""
    if len(text.encode()) <= room:
        return text
    lines = text.splitlines(keepends=True)
    left = room - len(_cut_notice(len(lines), len(lines)).encode())
    kept = 0
    for line in lines:
        left -= len(line.encode())
        if left < 0:
            break
        kept += 1
    notice = _cut_notice(len(lines) - kept, len(lines))
    return "".join(lines[:kept]) + notice if room >= len(notice.encode()) else ""


def _cut_notice(missing: int, of: int) -> str:
    return f"\nCut here: {missing} of {of} lines are not shown, because GitHub accepts 1 MB; the JSONL has all.\n"


def append_summary(text: str) -> None:
    """Append markdown to the summary file of this step, if there is one; what it already holds counts towards the limit."""
    name = os.environ.get(SUMMARY_FILE)
    if not name:
        return
    try:
        with Path(name).open("ab") as file:
            file.write(cut(text, SUMMARY_LIMIT - 1 - file.tell()).encode())
    except OSError as error:  # the verdicts do not depend on it
        sys.stderr.write(f"the step summary was not written to {name}: {error.strerror}\n")
