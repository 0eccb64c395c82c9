"""Words and small pieces that the pages about libraries share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from gates.report.conformance.cells import WORST_FIRST as GRADES
from gates.report.conformance.cells import Cell, Judged
from gates.report.labels import DEPARTS
from gates.results.conformance_records import BlankRecord, ConformanceResults, FindingRecord

TITLE = "Conformance: how libraries compute what they name"
BIAS = (
    "Our bias: the definitions are ours, we have a trainer and kernels of our own, and we read each library's source for "
    "hours, not for years. A finding that is unfair is a bug of this report."
)
CLAIMED = (
    "A finding is the case of its program. Its sentences, formulas and numbers hold there: with the settings that it names, and all "
    "others as the program has them, else at the library's defaults. It does not say that other settings, functions, sizes or machines "
    "are free of it or show the same, nor that each run meets it. Where several classes fit, it has as a rule the mildest."
)
GOOD = ("correct", "waived")
KINDS = {  # of findings, in the order of the report
    "bug": ("Bugs", "The code contradicts its own documentation, its name or the paper that it cites."),
    "trap": (
        "Traps",
        "Legal defaults and settings that surprise: they do nothing, or other than their name, the paper or the library's advice says.",
    ),
    "numeric": ("Numerics", "The formula is right; rounding, overflow or a rare input is not."),
    "convention": (
        "Conventions",
        "Choices that differ from the definition of that name, documented as the library's own or as good as it.",
    ),
}
MARKS = {
    "wrong": "**wrong**",
    "raises": "**raises**",
    "differs": "*differs*",
    DEPARTS: "*departs*",
    "correct": "correct",
}
USES = {  # of a finding; records from before 2026-11-26 have none
    "default": "in a default run",
    "option": "with a documented option",
    "direct": "in direct calls of the function",
}
BY = {"update": "updates", "function": "calls", "program": "programs"}
ABSENT = "–"
CHOSEN = "†"


def grade_words(cell: Cell, marks: dict[str, str]) -> str:
    """Return the grade of a cell with the uses in which it or a worse one shows."""
    first = marks[cell.grade] + (f" {USES[cell.use]}" if cell.use != "default" else "")
    return " · ".join([first, *(f"{marks[grade]} {USES[use]}" for use, grade in cell.otherwise.items())])


def asked(one: Judged) -> str:
    """Return how many cases stand behind a composition: "12 of 12 updates"."""
    if not one.of:
        return f"by {BY[one.by]} of findings" if one.by == "program" else ""
    return f"{one.asked} of {one.of} asked, {BY[one.by]}"


def worse_than(one: Judged, cell: Cell) -> bool:
    """Return whether a composition has a worse grade than a default run shows, so that it is said beside it."""
    return bool(one.grade) and GRADES.index(one.grade) < GRADES.index(cell.grade)


def counted(findings: Sequence[FindingRecord]) -> str:
    """Return how many findings there are of each kind, and how many were reproduced."""
    counts = Counter(finding.kind for finding in findings)
    departures = sum(counts[kind] for kind in KINDS if kind != "convention")
    return (
        f"{departures} departures ({counts['bug']} bugs, {counts['numeric']} numeric, {counts['trap']} traps) and, counted "
        f"apart, {counts['convention']} conventions; {sum(bool(f.reproduced) for f in findings)} of {len(findings)} were "
        "reproduced in this record."
    )


def shared(libraries: Sequence[ConformanceResults]) -> dict[str, list[str]]:
    """Return for each finding the other libraries of which a finding has the same departure."""
    having: dict[str, set[str]] = defaultdict(set)
    for library in libraries:
        for finding in library.findings:
            for departure in finding.departures:
                having[departure].add(library.header.peer)
    return {
        finding.id: sorted(
            {peer for departure in finding.departures for peer in having[departure]} - {library.header.peer}
        )
        for library in libraries
        for finding in library.findings
    }


def not_default(library: ConformanceResults) -> dict[str, list[str]]:
    """Return the settings that were chosen for a library, each with its ops."""
    ops: dict[str, dict[str, None]] = defaultdict(dict)
    for grade in library.grades:
        for setting in grade.settings:
            ops[setting][grade.op] = None
    return {setting: list(names) for setting, names in ops.items()}


def without_grade(blanks: Iterable[BlankRecord]) -> dict[tuple[str, str], list[str]]:
    """Return the ops without a grade, by kind and reason."""
    ops: dict[tuple[str, str], list[str]] = defaultdict(list)
    for blank in blanks:
        ops[blank.kind, blank.why].append(blank.op)
    return dict(ops)


def table_row(cells: Iterable[str]) -> str:
    """Return a row of a markdown table."""
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def rule(columns: int) -> str:
    """Return the line below a table's head."""
    return table_row(["---"] * columns)
