"""Render recorded results as markdown: failures first, cases that were not judged last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gates.model import NOT_JUDGED
from gates.report import calibration, markdown_head, markdown_proof, not_judged, smallest
from gates.report.baseline import Changes
from gates.report.changes import changes_markdown
from gates.report.failures import Failure, failures
from gates.report.grades import Grades, OpGrade
from gates.report.plain import counted
from gates.report.subjects import TITLES as COLUMNS
from gates.report.subjects import columns, standings
from gates.results.escape import code, in_table, one_line
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, EvidenceRecord, VerdictRecord

TITLES = {
    "error": "Errors of the judge",
    "timeout": "Out of time",
    "wrong": "Wrong",
    "differs": "Another choice",
    "raises": "Raises",
    "fragile": "Fragile",
    "imprecise": "Imprecise",
    "departs": "Documented deviations from the definition",
    "waived": "Waived",
    "hardening": "Hardening: input that no pipeline produces, or a layout that it does not take",
}
BOLD = ("wrong", "timeout", "error")
CASES = "Beside a pass stand the cases judged."
STRENGTH = "Beside a pass stand the cases judged and the mutants of the catalogue that its gates would have seen."
FULL = "Rendered by `gates report`; every number below is in the JSONL it names."
SHORT = (
    "Rendered by `gates report`. The linked files have every verdict with its evidence; `gates report FILE` shows all of one, "
    "`--format html` all of them as a page."
)
MOST_CASES = 12  # further cases of one failure that are named


def render(runs: Iterable[Results], changed: Changes | None = None) -> str:
    """Return one document: what changed since a baseline, then one run in full, or several in short."""
    runs = list(runs)
    several = len(runs) > 1
    parts = [
        "# Gates: recorded results",
        "",
        *((SHORT if several else FULL), ""),
        *(changes_markdown(changed).splitlines() if changed else ()),
        *([""] if changed else ()),
        *(_short(runs) if several else [line for run in runs for line in _full(run)]),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _full(run: Results) -> list[str]:
    """Return the sections of one run."""
    head = markdown_head.title(run)
    match run.header.verb:
        case "check":
            grades = Grades.of_runs([run])
            return [*head, *subjects_table(grades), *_grades(grades), *markdown_head.table(run), *_check(run)]
        case "prove":
            return [*head, *markdown_head.table(run), *markdown_proof.lines(run)]
        case "calibrate":
            return [*head, *markdown_head.table(run), *calibration.markdown(run)]


def _short(runs: Sequence[Results]) -> list[str]:
    """Return how the subjects did, then what each proof and each calibration found, then the runs."""
    checks, proofs, calibrations = (
        [run for run in runs if run.header.verb == verb] for verb in ("check", "prove", "calibrate")
    )
    grades = Grades.of_runs(checks)
    parts = [*markdown_head.overview(runs)]
    if checks:
        failed = [line for run in checks for line in _failures(run)]
        parts += ["## Verdicts", "", *subjects_table(grades), *failed, *_grades(grades), *_left(grades)]
    for run in proofs:
        parts += ["## Proof", "", f"{markdown_head.sentence(run)}.", "", *markdown_proof.summary(run)]
    for run in calibrations:
        parts += ["## Calibration", "", f"{markdown_head.sentence(run)}.", "", *calibration.summary(run)]
    parts += ["## Runs", ""]
    for run in runs:
        parts += [f"### {one_line(run.path.stem)}", "", *markdown_head.table(run)]
    return parts


def _left(grades: Grades) -> list[str]:
    """Return how many cases of each subject were not judged, in one line."""
    counts: Counter[tuple[str, str]] = Counter()
    for (subject, status, _), count in grades.left.items():
        counts[subject, status] += count
    words = (f"{in_table(subject)} {count} {status}" for (subject, status), count in sorted(counts.items()))
    return [f"Cases that were not judged: {'; '.join(words)}.", ""] if counts else []


def _check(run: Results) -> list[str]:
    return [*_failures(run), *_gates(run.verdicts), *_closest(run.verdicts), *_holes(run.verdicts)]


def _failures(run: Results) -> list[str]:
    """Return the failures, worst first."""
    lines = []
    all_failures = failures(run)
    for status, title in TITLES.items():
        here = [failure for failure in all_failures if failure.status == status]
        if here:
            lines += [f"### {title}", "", *(line for failure in here for line in _failure(failure)), ""]
    lines += _not_shrunk(run.counterexamples)
    if run.summary and run.summary.problems:
        lines += ["### What else fails the run", "", *(f"- {in_table(words)}" for words in run.summary.problems), ""]
    return lines


def subjects_table(grades: Grades) -> list[str]:
    """Return how many ops of each subject have each grade."""
    rows = standings(grades)
    shown_columns = columns(rows)
    titles = (COLUMNS.get(name, name) for name in shown_columns)
    lines = [f"| subject | {' | '.join(f'ops {name}' for name in titles)} | cases judged |"]
    lines.append("|---" * (len(shown_columns) + 2) + "|")
    for row in rows:
        numbers = ((name, row.ops.get(name, 0)) for name in shown_columns)
        cells = (f"**{count}**" if count and name in BOLD else str(count) for name, count in numbers)
        lines.append(f"| {in_table(row.subject)} | {' | '.join(cells)} | {row.ran} of {row.cases} |")
    return [*lines, ""] if rows else []


def _grades(grades: Grades) -> list[str]:
    """Return the grade of each op and subject."""
    rows = grades.table
    if not rows:
        return []
    subjects = sorted(grades.subjects)
    head = ["| op | " + " | ".join(map(in_table, subjects)) + " |", "|---" * (len(subjects) + 1) + "|"]
    lines = (f"| {code(op, cell=True)} | {' | '.join(map(_grade, row))} |" for op, row in rows)
    recorded = any(grade and grade.mutants for _, row in rows for grade in row)
    return ["### Grades", "", *head, *lines, "", STRENGTH if recorded else CASES, ""]


def _grade(grade: OpGrade | None) -> str:
    if grade is None:
        return ""
    status = f"**{grade.status}**" if grade.status in BOLD else grade.status
    mutants = f", {grade.seen}" if grade.mutants and grade.status == "correct" else ""
    noted = f"; {grade.note}" if grade.note else ""
    return f"{status} ({grade.count}{mutants}{noted})"


def _failure(failure: Failure) -> list[str]:
    """Return the worst case, further failing cases, and the smallest inputs with their commands."""
    worst, more = failure.worst, len(failure.verdicts) > 1
    gate = code(failure.gate) if failure.gate else "every gate"
    place = f"{'worst ' if more else ''}{in_table(worst.case)}: " if failure.gate else ""
    lines = [f"- **{in_table(failure.subject)}** {gate}, {failure.count}; {place}{in_table(worst.reason)}"]
    if w := worst.waived:
        words = f"{w.status}, waived until {w.expires} by {w.owner}, {w.issue}: {w.reason}"
        lines.append(f"  - {in_table(words)}")
    if more and failure.gate:
        others = [v.case for v in failure.verdicts[1:]]
        beyond = f", and {len(others) - MOST_CASES} more" if len(others) > MOST_CASES else ""
        lines.append(f"  - also {in_table(', '.join(others[:MOST_CASES]))}{beyond}")
    return [*lines, *(f"  - {_smallest(item)}" for item in failure.smallest)]


def _smallest(item: CounterexampleRecord) -> str:
    size = f"{in_table(item.case)}, {smallest.size(item)}"
    return f"smallest input that still fails ({size}): {in_table(item.words)}; {code(smallest.command(item))}"


def _not_shrunk(counterexamples: Iterable[CounterexampleRecord]) -> list[str]:
    """Return why inputs were not shrunk, and how to use the command of those that were."""
    counterexamples = list(counterexamples)
    lines = []
    if any(item.file for item in counterexamples):
        lines.append("`gates replay` judges a smallest input again; its path is relative to the folder of the results.")
    for reason, items in smallest.not_shrunk(counterexamples):
        places = sorted({f"{item.subject} {item.gate}" for item in items})
        beyond = f", and {len(places) - MOST_CASES} more" if len(places) > MOST_CASES else ""
        names = f"{in_table(', '.join(places[:MOST_CASES]))}{beyond}"
        lines.append(f"Not shrunk ({in_table(reason)}): {names}.")
    return [line for words in lines for line in (words, "")]


def _gates(verdicts: Sequence[VerdictRecord]) -> list[str]:
    """Return the table of the gates that judged a case, and the others in one line."""
    ran = {v.gate for v in verdicts if v.status not in NOT_JUDGED}
    never = sorted({v.gate for v in verdicts} - ran)
    lines = ["### Every gate", "", *matrix([v for v in verdicts if v.gate in ran])] if ran else []
    if never:
        lines += [f"Not judged for any subject ({len(never)} gates): {', '.join(map(code, never))}.", ""]
    return lines


def matrix(verdicts: Iterable[VerdictRecord]) -> list[str]:
    """Return the table of gates and subjects of one or more runs."""
    counts = counted(verdicts)
    gates = sorted({gate for gate, _ in counts})
    subjects = sorted({subject for _, subject in counts})
    lines = ["| gate | " + " | ".join(map(in_table, subjects)) + " |", "|---|" + "---|" * len(subjects)]
    rows = ((gate, [_cell(counts.get((gate, s), {})) for s in subjects]) for gate in gates)
    lines += [f"| {code(gate, cell=True)} | " + " | ".join(row) + " |" for gate, row in rows]
    return [*lines, ""]


def _cell(counts: Mapping[str, int]) -> str:
    words = (f"**{s} {n}**" if s in BOLD else f"{s} {n}" for s, n in counts.items())
    return ", ".join(sorted(words))


def _closest(verdicts: Iterable[VerdictRecord]) -> list[str]:
    """Return the passing evidence of each gate that is nearest to its limit, the nearest gate first."""
    best: dict[str, tuple[float, EvidenceRecord, VerdictRecord]] = {}
    exact = set()
    for v in verdicts:
        if v.status != "correct":
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
    lines = [in_table(f"{status}: {subject}: {words}") for status, subject, words in not_judged.reasons(verdicts)]
    return ["### Not judged", "", *(f"- {line}" for line in lines), ""] if lines else []
