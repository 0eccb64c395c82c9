"""Render runs as lines of text, from verdicts in progress or recorded ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from gates.model import FAILURES, NOT_JUDGED, Verdict
from gates.report import calibration, not_judged, screen
from gates.report.labels import shown
from gates.report.statuses import FAILED, SHOWN_WORST_FIRST
from gates.report.wrap import columns
from gates.results.escape import one_line
from gates.results.jsonl import Results
from gates.results.records import VerdictRecord
from gates.run.session import Tally

STYLES = {
    "correct": "green",
    "imprecise": "cyan",
    "fragile": "yellow",
    "raises": "yellow",
    "differs": "blue",
    "hardening": "dim",
    "wrong": "bold red",
    "timeout": "bold red",
    "not asked": "dim",
    "departs": "red",
    "error": "bold magenta",
    "skipped": "yellow",
    "unsupported": "dim",
    "waived": "yellow",
}
MOST_IDLE = 10  # gates without a judged case up to which each has its line
AnyVerdict = Verdict | VerdictRecord


def render_text(runs: Iterable[Results]) -> str:
    """Return what a terminal shows at the end of each run: of a check the screen of its grades."""
    return "\n\n".join("\n".join(_run(run)) for run in runs) + "\n"


def _run(run: Results) -> list[str]:
    if run.header.verb == "calibrate":
        state = [run.state] if run.summary is None else []
        return [*state, *calibration.text(run)]
    if run.header.verb == "check":
        return [line.plain.rstrip() for line in screen.lines(screen.of(run), columns())]
    verdicts = sorted(run.judged, key=lambda v: (v.subject, v.gate, v.case))
    lines = [verdict_line(v).plain for v in verdicts if v.status in {*FAILURES, "error", "waived"}]
    lines += _mutants(run)
    lines += ["", *(line.plain.rstrip() for line in table(verdicts)), *holes(verdicts)]
    lines += map(one_line, run.summary.problems) if run.summary else [run.state]
    if run.mutants:
        caught = sum(mutant.state == "caught" for mutant in run.mutants)
        lines += ["", f"{caught} of {len(run.mutants)} mutants caught"]
    tally = Tally(Counter(v.status for v in verdicts))
    return [*lines, "", one_line(f"results: {run.path}"), tally.line()]


def _mutants(run: Results) -> list[str]:
    caught: dict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
    for v in run.verdicts:
        if v.mutant:
            caught[v.mutant, v.gate][v.status in FAILURES] += 1
    return [
        f"{'CAUGHT' if counts[True] else 'MISSED':11} {one_line(mutant)} by {one_line(gate)}: {counts[True]} of {counts.total()} cases"
        for (mutant, gate), counts in sorted(caught.items())
    ]


def verdict_line(verdict: AnyVerdict) -> Text:
    """Return one verdict: status, place, and the reason unless it passed."""
    line = Text(f"{shown(verdict).upper():11} ", style=STYLES[shown(verdict)])
    line.append(" · ".join(map(one_line, (verdict.subject, verdict.gate, verdict.case))), style="default")
    if verdict.reason and verdict.status != "correct":
        line.append(f": {one_line(verdict.reason)}", style="default")
    if why := verdict.waived:
        words = f" ({why.status}, waived until {why.expires} by {why.owner}, {why.issue}: {why.reason})"
        line.append(one_line(words), style="default")
    return line


def holes(verdicts: Iterable[AnyVerdict]) -> list[str]:
    """Return a line for each cause of cases that were skipped or unsupported."""
    return [one_line(f"{status}: {subject}: {words}") for status, subject, words in not_judged.reasons(verdicts)]


def counted(verdicts: Iterable[AnyVerdict]) -> dict[tuple[str, str], Counter[str]]:
    """Return how many verdicts of each shown status a gate and a subject have."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        counts[verdict.gate, verdict.subject][shown(verdict)] += 1
    return counts


def table(verdicts: Sequence[AnyVerdict]) -> list[Text]:
    """Return a line per gate with the counts of each subject; many gates without a judged case share one line."""
    cells = {(one_line(gate), one_line(subject)): counts for (gate, subject), counts in counted(verdicts).items()}
    ran = {gate for (gate, _), counts in cells.items() if any(status not in NOT_JUDGED for status in counts)}
    never = sorted({gate for gate, _ in cells} - ran)
    folded = bool(ran) and len(never) > MOST_IDLE
    gates = sorted(ran) if folded else sorted({gate for gate, _ in cells})
    subjects = list(dict.fromkeys(subject for _, subject in sorted(cells)))
    width = max((len(gate) for gate in gates), default=4)
    widths = {
        subject: max(14, len(subject), *(len(cell(cells.get((gate, subject), Counter()))[1]) for gate in gates))
        for subject in subjects
    }
    lines = [Text(f"{'gate':{width}}  " + "  ".join(f"{s:{widths[s]}}" for s in subjects), style="bold")]
    for gate in gates:
        line = Text(f"{gate:{width}}")
        for subject in subjects:
            worst, words = cell(cells.get((gate, subject), Counter()))
            line.append("  ")
            line.append(f"{words:{widths[subject]}}", style=STYLES[worst] if worst else "dim")
        lines.append(line)
    if folded:
        lines.append(Text(f"not judged for any subject ({len(never)} gates): {', '.join(never)}", style="dim"))
    if any(left(counts) for counts in cells.values()):
        lines.append(Text("(+n): n more cases were not judged, see below", style="dim"))
    return lines


def cell(counts: Mapping[str, int]) -> tuple[str | None, str]:
    """Return the worst status of a gate for a subject, and its words: `pass 12`, `FAIL 3 of 12`, `pass 2 (+10)`."""
    worst, words = judged(counts)
    return worst, words + (f" (+{more})" if (more := left(counts)) else "")


def judged(counts: Mapping[str, int]) -> tuple[str | None, str]:
    """Return the worst status of a gate for a subject, and how many of the judged cases have it."""
    if not any(counts.values()):
        return None, "·"
    total = sum(count for status, count in counts.items() if status not in NOT_JUDGED)
    worst = next(status for status in SHOWN_WORST_FIRST if counts.get(status))
    if worst in NOT_JUDGED:
        return worst, worst
    if worst in FAILED:
        return worst, f"{worst.upper()} {counts[worst]} of {total}"
    return worst, f"{worst} {counts[worst]}" + ("" if counts[worst] == total else f" of {total}")


def left(counts: Mapping[str, int]) -> int:
    """Return how many cases were not judged, if others of the gate were."""
    more = sum(counts.get(status, 0) for status in NOT_JUDGED)
    return more if more < sum(counts.values()) else 0
