"""The conformance report: the grade of each op of each library, the findings, and the coverage of public names."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from gates.report.labels import DEPARTS
from gates.report.statuses import BY_GRADE
from gates.report.wrap import columns, wrapped
from gates.results.conformance_records import BlankRecord, ConformanceResults, FindingRecord, GradeRecord
from gates.results.escape import one_line
from gates.subjects.peers.scope import STATUSES, scope

TITLE = "Conformance: how libraries compute what they name"
BIAS = (
    "Our bias: the definitions are ours, we have a trainer and kernels of our own, and we read each library's source for "
    "hours, not for years. A finding that is unfair is a bug of this report."
)
GOOD = ("correct", "waived")
KINDS = {  # of findings, in the order of the report
    "bug": ("Bugs", "The code contradicts its own documentation, its name or the paper that it cites."),
    "numeric": ("Numerics", "The formula is right; rounding, overflow or a rare input is not."),
    "trap": ("Traps", "Legal defaults that surprise."),
    "convention": ("Conventions", "Documented or legitimate choices that differ from the definition of that name."),
}
MARKS = {
    "correct": "correct",
    "waived": "waived",
    "imprecise": "imprecise",
    "fragile": "fragile",
    "raises": "raises",
    "differs": "*differs*",
    "hardening": "hardening",
    DEPARTS: "*departs*",
    "wrong": "**wrong**",
    "timeout": "timeout",
    "error": "error",
}
USES = {  # of a finding; records from before 2026-11-26 have none
    "default": "in a default run",
    "option": "with a documented option",
    "direct": "in direct calls of the function",
}
ABSENT = "–"
CHOSEN = "†"
CONFIGURATION = "resolve_config"  # an op of each trainer
COMPOSED = "policy_loss["  # its ops may be a preset with other choices: `policy_loss[grpo, no bound, token mean]`
INDENT = "  "
Cell = list[GradeRecord | BlankRecord]  # of a library and an op


def screen(results: ConformanceResults, problems: Sequence[str]) -> Iterator[str]:
    """Yield the lines of one library: counts, ops that are not correct, and problems that no record explains."""
    header, width = results.header, columns()
    counts = Counter(grade.grade for grade in results.grades)
    rows = Counter(row.status for row in results.coverage)
    ran = [finding for finding in results.findings if finding.reproduced is not None]
    pieces = [
        f"{header.peer} {header.version}",
        f"{len(results.grades)} ops judged",
        *(f"{counts[status]} {status}" for status in BY_GRADE if counts[status]),
        f"{len(results.coverage)} public names, {rows['']} without a row, {scope(results.coverage)}",
        f"{sum(bool(f.reproduced) for f in ran)} of {len(ran)} findings reproduced",
        f"{header.seconds:.0f} s",
    ]
    yield from wrapped(pieces, width, " · ")
    for grade in results.grades:
        if grade.grade not in GOOD:
            why = ", ".join(grade.findings) or grade.computes or grade.reason
            yield from _indented(f"{grade.grade.upper():11}{_named(grade, header.peer)}", why, width)
    for problem in problems:
        yield from _indented("!", one_line(problem), width)


def _indented(head: str, text: str, width: int) -> Iterator[str]:
    first, *rest = wrapped([head, *text.split()], width - 2 * len(INDENT), " ")
    yield INDENT + first
    yield from (2 * INDENT + line for line in rest)


def _named(grade: GradeRecord, peer: str) -> str:
    return grade.op if grade.subject == peer else f"{grade.op} of {grade.subject}"


def render(results: Iterable[ConformanceResults]) -> str:
    """Return the report as markdown: the matrix, the findings, and the coverage."""
    libraries = sorted(results, key=lambda library: library.header.peer)
    return "\n".join([*_head(libraries), *_matrix(libraries), *_findings(libraries), *_coverage(libraries)]) + "\n"


def _head(libraries: Sequence[ConformanceResults]) -> Iterator[str]:
    versions = ", ".join(sorted({library.header.definitions for library in libraries}))
    machines = ", ".join(sorted({library.header.machine.cpu for library in libraries}))
    days = sorted(library.header.started[:10] for library in libraries)
    yield f"# {TITLE}"
    yield ""
    yield (
        f"{len(libraries)} libraries, each judged through its own functions in its own environment, against definitions "
        f"{versions} ([definitions.md](../docs/definitions.md)); {days[0]} to {days[-1]}, {machines}."
    )
    yield (
        "A grade is of the op under the conventions that the library has: a choice that it documents is a convention, not "
        "an error. `gates peers check NAME` judges a library again, `gates peers repro ID` runs the program of a finding "
        "in the library's environment, without Gates. Every number is in [conformance/](conformance/)."
    )
    yield BIAS
    yield ""


def _matrix(libraries: Sequence[ConformanceResults]) -> Iterator[str]:
    yield "## Grades"
    yield ""
    yield (
        "correct: the definition, within what its dtype can reach · imprecise: less precise than that · fragile: fails on "
        "rare input that runs produce · *differs*: another library's choice · *departs*: another formula, which its "
        "documentation announces · **wrong**: a mistake or an unknown formula, off by more than a ten-thousandth of an ordinary "
        "value. Input that no pipeline produces (NaN in padding, ±1000 nats) costs no grade: findings marked hardening. A number "
        "counts the cases; *as …* names the library's own composition, "
        f"which is what was judged. {CHOSEN}: a setting that is not the library's default, listed below. {ABSENT}: the "
        "library does not have it. *not judged*: it has it, and the reason stands below. *refused*: it raises an error that "
        "says so."
    )
    yield ""
    yield _row(["op", *(f"{library.header.peer} {library.header.version}" for library in libraries)])
    yield _row(["---"] * (len(libraries) + 1))
    for ops, cells in rows(libraries, _cell):
        grades = ("; ".join(map(_cell, cell)) or ABSENT for cell in cells)
        yield _row([", ".join(f"`{op}`" for op in ops), *grades])
    yield ""
    yield from _apart(libraries)
    chosen = ((library.header.peer, " · ".join(_chosen(library))) for library in libraries)
    yield from _listed("Not the default", ((peer, words) for peer, words in chosen if words))
    blanks = ((library.header.peer, " · ".join(_blanks(library.blanks))) for library in libraries)
    yield from _listed("Not judged or refused", ((peer, words) for peer, words in blanks if words))


def rows(
    libraries: Sequence[ConformanceResults], text: Callable[[GradeRecord | BlankRecord], str]
) -> list[tuple[list[str], list[Cell]]]:
    """Return the rows of the matrix: ops whose cells look alike, and a cell for each library.

    Args:
        libraries: the columns.
        text: what a cell shows of a record.
    """
    cells = _cells(libraries)
    names = [library.header.peer for library in libraries]
    alike: dict[tuple[str, ...], tuple[list[str], list[Cell]]] = {}
    for op in sorted({op for _, op in cells}):
        row = [cells[name, op] for name in names]
        key = (op.partition("[")[0], *("; ".join(map(text, cell)) for cell in row))
        alike.setdefault(key, ([], row))[0].append(op)
    return list(alike.values())


def _cells(libraries: Iterable[ConformanceResults]) -> dict[tuple[str, str], Cell]:
    """Return the records in each library's cell of each op; compositions of variants stand in the row of their preset."""
    cells: dict[tuple[str, str], Cell] = defaultdict(list)
    for library in libraries:
        peer = library.header.peer
        for grade in library.grades:
            if grade.subject == peer or choices(grade.op):
                cells[peer, _preset(grade.op)].append(grade)
        for blank in library.blanks:
            cells[peer, blank.op].append(blank)
        own = (grade for grade in library.grades if grade.subject == peer)
        same = [grade for grade in own if grade.op.startswith(f"{CONFIGURATION}[")]
        if len({grade.grade for grade in same}) == 1:  # of all trainers: one row
            counts = {name: sum(getattr(grade, name) for grade in same) for name in ("cases", "of_this_grade")}
            for grade in same:
                del cells[peer, grade.op]
            cells[peer, CONFIGURATION] = [same[0].model_copy(update={"op": CONFIGURATION, **counts})]
    return cells


def choices(op: str) -> str:
    """Return the choices of a composition beside its preset: "no bound, token mean"."""
    return op.removeprefix(COMPOSED).rstrip("]").partition(", ")[2] if op.startswith(COMPOSED) else ""


def _preset(op: str) -> str:
    return f"{op.partition(', ')[0]}]" if choices(op) else op


def _cell(record: GradeRecord | BlankRecord) -> str:
    if isinstance(record, BlankRecord):
        return f"*{record.kind}*"
    count = str(record.cases) if record.grade in GOOD else f"{record.of_this_grade}/{record.cases}"
    composition = f" *as {words}*" if (words := choices(record.op)) else ""
    return f"{MARKS[record.grade]} {count}{CHOSEN if record.settings else ''}{composition}"


def _apart(libraries: Iterable[ConformanceResults]) -> Iterator[str]:
    graded = " · ".join(
        f"`{grade.subject}` {grade.op}: {MARKS[grade.grade]}" for library in libraries for grade in apart(library)
    )
    if graded:
        yield f"Documented parameter sets, judged apart: {graded}."
        yield ""


def apart(library: ConformanceResults) -> list[GradeRecord]:
    """Return the grades of documented parameter sets that have no row."""
    return [grade for grade in library.grades if grade.subject != library.header.peer and not choices(grade.op)]


def _chosen(library: ConformanceResults) -> Iterator[str]:
    yield from (f"{setting} (`{'`, `'.join(names)}`)" for setting, names in not_default(library).items())


def not_default(library: ConformanceResults) -> dict[str, list[str]]:
    """Return the settings that were chosen for a library, each with its ops."""
    ops: dict[str, dict[str, None]] = defaultdict(dict)
    for grade in library.grades:
        for setting in grade.settings:
            ops[setting][grade.op] = None
    return {setting: list(names) for setting, names in ops.items()}


def _blanks(blanks: Iterable[BlankRecord]) -> Iterator[str]:
    yield from (f"{kind}: `{'`, `'.join(names)}`: {why}" for (kind, why), names in without_grade(blanks).items())


def without_grade(blanks: Iterable[BlankRecord]) -> dict[tuple[str, str], list[str]]:
    """Return the ops without a grade, by kind and reason."""
    ops: dict[tuple[str, str], list[str]] = defaultdict(list)
    for blank in blanks:
        ops[blank.kind, blank.why].append(blank.op)
    return dict(ops)


def _listed(title: str, entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    lines = [f"- {peer}: {entry}" for peer, entry in entries]
    if lines:
        yield from (f"{title}:", "", *lines, "")


def _findings(libraries: Sequence[ConformanceResults]) -> Iterator[str]:
    every, sharing = [(library, finding) for library in libraries for finding in library.findings], shared(libraries)
    yield "## Findings"
    yield ""
    yield counted([finding for _, finding in every])
    for kind, (title, words) in KINDS.items():
        chosen = [(library, finding) for library, finding in every if finding.kind == kind]
        if chosen:
            yield from ("", f"### {title}", "", words, "")
            yield from (_item(library, finding, sharing[finding.id]) for library, finding in chosen)
    yield ""


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


def _item(library: ConformanceResults, finding: FindingRecord, others: Sequence[str]) -> str:
    grades = (
        f"{finding.grade}: {', '.join(f'`{op}`' for op in finding.ops)}" if finding.ops else "no op of ours shows it"
    )
    use = f"; {USES[finding.use]}" if finding.use else ""
    same = f" The same in: {', '.join(others)}." if others else ""
    computes = f" Computes: {finding.computes}." if finding.computes else ""
    shown = "" if finding.reproduced else " (not reproduced in this record)"
    return (
        f"- **{finding.id}** ({library.header.peer} {library.header.version}, `{finding.where}`; {grades}{use}){shown}: {finding.says}"
        f"{computes} Measured: {finding.number}. In a run: {finding.consequence}{same}"
    )


def _coverage(libraries: Sequence[ConformanceResults]) -> Iterator[str]:
    yield "## Coverage"
    yield ""
    yield (
        "Public names of the installed packages: configuration fields, values of their options, functions. Judged of what is in "
        "scope is what an op of ours asks (judged, judged elsewhere) or a finding's program (departs); what each status means and "
        "every name stand in [SCOPE.md](conformance/SCOPE.md), and `gates peers coverage NAME` gives the reasons."
    )
    yield ""
    yield _row(["library", "names", "of what is in scope", *STATUSES])
    yield _row(["---"] * (len(STATUSES) + 3))
    for library in libraries:
        counts = Counter(row.status for row in library.coverage)
        share = str(scope(library.coverage))
        yield _row(
            [library.header.peer, str(len(library.coverage)), share, *(str(counts[status]) for status in STATUSES)]
        )


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
