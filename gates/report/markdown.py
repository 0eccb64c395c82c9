"""Recorded results as markdown: a pure function of the files. What fails comes first, what was not judged last."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from gates.report import calibration, markdown_head, markdown_proof, smallest
from gates.report.changes import changes_markdown
from gates.report.failures import Failure, failures
from gates.report.holes import condensed
from gates.report.labels import NOT_JUDGED, shown
from gates.report.subjects import COLUMNS, columns, standings
from gates.results.escape import code, in_table
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, EvidenceRecord, VerdictRecord
from gates.run.baseline import Changes

TITLES = {
    "error": "Errors of the judge",
    "fail": "Failures",
    "departs": "Departures from the definition that the subject documents",
    "waived": "Waived",
}
MOST_CASES = 12  # names of further cases of one failure


def render(runs: Iterable[Results], changed: Changes | None = None) -> str:
    """Return one document: what changed since a baseline, and all runs in the order given."""
    runs = list(runs)
    parts = [
        "# Gates: recorded results",
        "",
        "Rendered by `gates report`; every number below is in the JSONL it names.",
        "",
        *(changes_markdown(changed).splitlines() if changed else ()),
        *([""] if changed else ()),
        *markdown_head.overview(runs),
    ]
    for run in runs:
        parts += markdown_head.title(run)
        match run.header.verb:
            case "check":
                parts += [*_subjects(run.verdicts), *markdown_head.table(run), *_check(run)]
            case "prove":
                parts += [*markdown_head.table(run), *markdown_proof.lines(run)]
            case "calibrate":
                parts += [*markdown_head.table(run), *calibration.markdown(run)]
    return "\n".join(parts).rstrip() + "\n"


def _check(run: Results) -> list[str]:
    lines = []
    found = failures(run)
    for status, title in TITLES.items():
        here = [failure for failure in found if failure.status == status]
        if here:
            lines += [f"### {title}", "", *(line for failure in here for line in _failure(failure)), ""]
    lines += _not_made(run.counterexamples)
    if run.summary and run.summary.problems:
        lines += ["### What else fails the run", "", *(f"- {in_table(words)}" for words in run.summary.problems), ""]
    return [*lines, *_gates(run.verdicts), *_closest(run.verdicts), *_holes(run.verdicts)]


def _subjects(verdicts: Iterable[VerdictRecord]) -> list[str]:
    """Return how many gates hold and fail for each subject."""
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for v in verdicts:
        cells[v.gate, v.subject][shown(v)] += 1
    found = standings(cells)
    shown_columns = columns(found)
    lines = [f"| subject | {' | '.join(COLUMNS[name] for name in shown_columns)} | cases judged |"]
    lines.append("|---" * (len(shown_columns) + 2) + "|")
    for item in found:
        numbers = ((name, item.gates.get(name, 0)) for name in shown_columns)
        told = (f"**{count}**" if count and name in {"fail", "error"} else str(count) for name, count in numbers)
        lines.append(f"| {in_table(item.subject)} | {' | '.join(told)} | {item.ran} of {item.cases} |")
    return [*lines, ""] if found else []


def _failure(found: Failure) -> list[str]:
    """Return the worst case with its evidence, who else fails, and the smallest input with its command."""
    worst, more = found.worst, len(found.verdicts) > 1
    gate = code(found.gate) if found.gate else "every gate"
    place = f"{'worst ' if more else ''}{in_table(worst.case)}: " if found.gate else ""
    lines = [f"- **{in_table(found.subject)}** {gate}, {found.count}; {place}{in_table(worst.reason)}"]
    if w := worst.waived:
        words = f"{w.status}, waived until {w.expires} by {w.owner}, {w.issue}: {w.reason}"
        lines.append(f"  - {in_table(words)}")
    if more and found.gate:
        others = [v.case for v in found.verdicts[1:]]
        beyond = f", and {len(others) - MOST_CASES} more" if len(others) > MOST_CASES else ""
        lines.append(f"  - also {in_table(', '.join(others[:MOST_CASES]))}{beyond}")
    return [*lines, *(f"  - {_smallest(item)}" for item in found.smallest)]


def _smallest(item: CounterexampleRecord) -> str:
    size = f"{in_table(item.case)}, {smallest.size(item)}"
    return f"smallest input that still fails ({size}): {in_table(item.words)}; {code(smallest.command(item))}"


def _not_made(found: Iterable[CounterexampleRecord]) -> list[str]:
    """Return why failures have no smaller input, and the command's sentence where others have one."""
    found = list(found)
    lines = []
    if any(item.file for item in found):
        lines.append("`gates replay` judges a smallest input again; its path is that from the folder of the results.")
    for reason, items in smallest.not_made(found):
        places = sorted({f"{item.subject} {item.gate}" for item in items})
        beyond = f", and {len(places) - MOST_CASES} more" if len(places) > MOST_CASES else ""
        told = f"{in_table(', '.join(places[:MOST_CASES]))}{beyond}"
        lines.append(f"Not made smaller ({in_table(reason)}): {told}.")
    return [line for words in lines for line in (words, "")]


def _gates(verdicts: Sequence[VerdictRecord]) -> list[str]:
    """Return the table of the gates that judged anything; the others in a line, for a reader looks for what was."""
    ran = {v.gate for v in verdicts if v.status not in NOT_JUDGED}
    never = sorted({v.gate for v in verdicts} - ran)
    lines = ["### Every gate", "", *matrix([v for v in verdicts if v.gate in ran])] if ran else []
    if never:
        lines += [f"Not judged for any subject ({len(never)} gates): {', '.join(map(code, never))}.", ""]
    return lines


def matrix(verdicts: Iterable[VerdictRecord]) -> list[str]:
    """Return the table of gates and subjects over verdicts, one run's or several."""
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for v in verdicts:
        cells[v.gate, v.subject][shown(v)] += 1
    gates = sorted({gate for gate, _ in cells})
    subjects = sorted({subject for _, subject in cells})
    lines = ["| gate | " + " | ".join(map(in_table, subjects)) + " |", "|---|" + "---|" * len(subjects)]
    rows = ((gate, [_cell(cells.get((gate, s), Counter())) for s in subjects]) for gate in gates)
    lines += [f"| {code(gate, cell=True)} | " + " | ".join(row) + " |" for gate, row in rows]
    return [*lines, ""]


def _cell(counts: Counter[str]) -> str:
    words = (f"**{s} {n}**" if s in {"fail", "error"} else f"{s} {n}" for s, n in counts.items())
    return ", ".join(sorted(words))


def _closest(verdicts: Iterable[VerdictRecord]) -> list[str]:
    """Return the evidence of each gate that came nearest to its limit and still passed, the nearest gate first."""
    best: dict[str, tuple[float, EvidenceRecord, VerdictRecord]] = {}
    exact = set()
    for v in verdicts:
        if v.status != "pass":
            continue
        for item in v.evidence:
            if item.role != "claim" or item.relation != "<=":
                continue
            exact.add(v.gate)
            share = item.observed / item.limit if item.limit else 0.0
            if share > 0 and (v.gate not in best or share > best[v.gate][0]):
                best[v.gate] = (share, item, v)
    exact -= best.keys()
    lines = ["### Nearest to the limit, of what passed", ""] if best or exact else []
    if best:
        lines += [
            "| gate | share of the limit | quantity | observed | limit | subject and case |",
            "|---|---|---|---|---|---|",
        ]
    for gate, (share, item, v) in sorted(best.items(), key=lambda entry: (-entry[1][0], entry[0])):
        lines.append(
            f"| {code(gate, cell=True)} | {share:.2g} | {in_table(item.quantity)} | {item.observed:.3g} | {item.limit:.3g} "
            f"| {in_table(v.subject)}, {in_table(v.case)} |"
        )
    if exact:
        lines += [""] if best else []
        lines.append(f"At 0, the best there is ({len(exact)} gates): {', '.join(map(code, sorted(exact)))}.")
    return [*lines, ""] if lines else []


def _holes(verdicts: Iterable[VerdictRecord]) -> list[str]:
    found: Counter[tuple[str, str, str]] = Counter(
        (v.subject, v.status, v.reason) for v in verdicts if v.status in NOT_JUDGED
    )
    lines = [in_table(f"{status}: {subject}: {words}") for status, subject, words in condensed(found)]
    return ["### Not judged", "", *(f"- {line}" for line in lines), ""] if lines else []
