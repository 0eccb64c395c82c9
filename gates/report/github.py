"""A recorded run for GitHub Actions: annotations on the log, and a step summary that is not too long."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gates.report import smallest
from gates.report.failures import Failure, failures
from gates.results.escape import visible
from gates.results.jsonl import Results

SUMMARY_LIMIT = 1024 * 1024  # bytes of one step's summary; GitHub drops a larger one
SUMMARY_FILE = "GITHUB_STEP_SUMMARY"
ERRORS = ("fail", "departs", "error")


def commands(runs: Iterable[Results]) -> list[str]:
    """Return workflow commands, the errors first: GitHub shows ten of each kind. One line per gate, subject and status."""
    errors: list[str] = []
    warnings: list[str] = []
    for run in runs:
        problems = run.summary.problems if run.summary else [run.state]
        errors += [_command("error", "gates", words) for words in problems]
        for found in failures(run):
            kind, said = ("error", errors) if found.status in ERRORS else ("warning", warnings)
            said.append(
                _command(kind, f"{found.subject} · {found.gate or found.status}", _words(found, run.path.parent))
            )
        skipped = Counter((v.subject, v.reason) for v in run.verdicts if v.status == "skipped")
        for (subject, reason), count in sorted(skipped.items()):
            warnings.append(_command("warning", f"{subject} · skipped", f"{reason} ({count} cases)"))
    return [*errors, *warnings]


def _words(found: Failure, folder: Path) -> str:
    """Return the worst case, and the smallest input on which the gate still fails, each on a line."""
    if not found.gate:
        return f"{found.worst.reason} ({len(found.verdicts)} cases)"
    worst = "worst " if len(found.verdicts) > 1 else ""
    lines = [f"{found.status} in {found.count}; {worst}{found.worst.case}: {found.worst.reason}"]
    return "\n".join([*lines, *(smallest.sentence(item, folder) for item in found.smallest)])


def _command(kind: str, title: str, message: str) -> str:
    """Return one workflow command, escaped as GitHub's own toolkit does (`command.ts`)."""
    data = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    named = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")
    return visible(f"::{kind} title={named}::{data}")


def cut(text: str, room: int) -> str:
    """Return at most `room` bytes of the text, cut at the end of a line, with a line that says how much is missing."""
    if len(text.encode()) <= room:
        return text
    lines = text.splitlines(keepends=True)
    left = room - len(_said_of_cut(len(lines), len(lines)).encode())
    kept = 0
    for line in lines:
        left -= len(line.encode())
        if left < 0:
            break
        kept += 1
    said = _said_of_cut(len(lines) - kept, len(lines))
    return "".join(lines[:kept]) + said if room >= len(said.encode()) else ""


def _said_of_cut(missing: int, of: int) -> str:
    return f"\nCut here: {missing} of {of} lines are not shown, for GitHub takes 1 MB; the JSONL has them all.\n"


def append_summary(text: str) -> None:
    """Add markdown to the summary of this step, where GitHub gave it a file; other steps' words before it count too."""
    name = os.environ.get(SUMMARY_FILE)
    if not name:
        return
    try:
        with Path(name).open("ab") as file:
            file.write(cut(text, SUMMARY_LIMIT - 1 - file.tell()).encode())
    except OSError as error:  # the verdicts stand without it
        sys.stderr.write(f"the step summary was not written to {name}: {error.strerror}\n")
