"""Show the end of a run on one screen: a head per subject, a row per op that is not correct, the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.cells import cell_len
from rich.text import Text

from gates.model import DEFAULT, FAILURES, GRADES, STRICT, Grade, failing
from gates.report import diagnosis, not_judged, smallest, ungraded
from gates.report.grades import EVERY, Grades, OpGrade, counted_mutants, totals
from gates.report.labels import DEPARTS, NOTHING
from gates.report.plainly import plainly, rare
from gates.report.statuses import BY_GRADE, SHOWN_WORST_FIRST
from gates.report.wrap import beside, sentence, wrapped
from gates.results.escape import one_line
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, DiagnosisRecord

STYLES = {
    "correct": "green",
    "imprecise": "cyan",
    "fragile": "yellow",
    "raises": "yellow",
    "differs": "blue",
    "hardening": "dim",
    "wrong": "bold red",
    "timeout": "bold red",
    DEPARTS: "red",
    "error": "bold magenta",
    "waived": "yellow",
    "not judged": "dim",
}
GOOD = frozenset(("correct", "hardening"))
MARGIN = "  "
STATUS = 11  # columns of the word for a status
NAME = 26  # columns that the name of an op takes at most; a longer one has its own line
ROWS = 8  # ops of a run that have rows of their own; the others are named
FEW = 3  # correct variants of an op, such as policy_loss[grpo], up to which each is named
MOST_PROBLEMS = 3
REASON = 4  # lines at most, of a smallest input too
NOT_OWN = frozenset(  # versions that are not the subject's own
    ("numpy", "python", "torch", "mlx", "jax", "jaxlib", "tensorflow", "transformers")
)


@dataclass(frozen=True, slots=True)
class Ended:
    """What the screen shows of a run."""

    grades: Grades
    path: Path  # of the results
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of each subject
    smallest: Mapping[tuple[str, str], CounterexampleRecord] = field(default_factory=dict)  # by subject and op
    problems: Sequence[str] = ()
    seconds: float | None = None
    fail_on: Grade = DEFAULT
    exit_code: int | None = None  # None: the run did not end
    state: str = ""
    notes: Sequence[str] = ()  # lines before the path of the results
    diagnoses: Mapping[tuple[str, str], DiagnosisRecord] = field(default_factory=dict)  # by subject and op
    unasked: Sequence[str] = ()  # sentences on ops that a subject provides and no case judged


def of(run: Results) -> Ended:
    """Return what the screen shows of a recorded run."""
    judged = run.judged
    return Ended(
        Grades.of_runs([run]),
        run.path,
        {record.subject: record.versions for record in run.subjects},
        by_op(run.counterexamples, {(v.gate, v.subject, v.case): v.op for v in judged}),
        run.summary.problems if run.summary else (),
        run.summary.seconds if run.summary else None,
        run.header.fail_on,
        run.summary.exit_code if run.summary else None,
        run.state,
        diagnoses={(record.subject, record.op): record for record in run.diagnoses},
        unasked=run.summary.unasked if run.summary else (),
    )


def by_op(
    counterexamples: Iterable[CounterexampleRecord], ops: Mapping[tuple[str, str, str], str]
) -> dict[tuple[str, str], CounterexampleRecord]:
    """Return for each subject and op an input on which it fails: a shrunk one, else one as it was drawn.

    Args:
        counterexamples: of a run.
        ops: of each gate, subject and case.
    """
    known: dict[tuple[str, str], CounterexampleRecord] = {}
    for item in sorted(counterexamples, key=lambda item: (not smallest.shrunk(item), item.gate, item.case)):
        if item.file is not None:
            known.setdefault((item.subject, ops.get((item.gate, item.subject, item.case), "")), item)
    return known


def lines(run: Ended, width: int, height: int | None = None) -> list[Text]:
    """Return the screen: of several subjects those that fail last, so that they stay in sight where a terminal scrolls.

    Of one subject the failures come first, unless the screen is higher than the terminal.
    """
    judged = {name: grades for name in run.grades.subjects if (grades := run.grades.grades(name))}
    absent = _absent(run, [name for name in run.grades.subjects if name not in judged], width)
    if len(judged) == 1:
        ((subject, grades),) = judged.items()
        head, rows = _head(run, subject, grades, width, alone=True), _rows(run, grades, width, ROWS)
        beside = [*_correct(grades, width), *_noted(grades, width), *_hardening(run, grades, width)]
        beside += [*_left(run, subject, width), *absent]
        last = end(run, width, time=False)
        fits = height is None or len(head) + len(rows) + len(beside) + len(last) < height
        return [*head, *rows, *beside, *last] if fits else [*head, *beside, *rows, *last]
    good = sorted(name for name, grades in judged.items() if {grade.status for grade in grades} <= GOOD)
    bad = sorted((name for name in judged if name not in good), key=lambda name: (badness(judged[name]), name))
    room = max(2, 2 * ROWS // max(1, len(bad)))
    body = []
    for name in good:
        body += [*_head(run, name, judged[name], width, alone=False), *_noted(judged[name], width)]
    body += [*absent, *(_left_of_all(run, width) if judged else ())]
    for name in bad:
        body += [*_head(run, name, judged[name], width, alone=False), *_rows(run, judged[name], width, room)]
        body += _hardening(run, judged[name], width)
        body += _noted(judged[name], width)
    return [*body, *end(run, width)]


def badness(grades: Sequence[OpGrade]) -> int:
    """Return a number by which subjects are ordered, the one with the worst grade last."""
    return max((-SHOWN_WORST_FIRST.index(grade.status) for grade in grades), default=-len(SHOWN_WORST_FIRST))


def named(run: Ended, subject: str) -> str:
    """Return a subject with its version, where it reports one: `mylib 0.3`."""
    versions = run.versions.get(subject, {})
    own = [version for name, version in versions.items() if name.lower() not in NOT_OWN]
    library = subject.partition("@")[0].removesuffix("_gates")
    version = versions.get(library) or (own[0] if len(own) == 1 else "")
    return one_line(f"{subject} {version}".rstrip())


def _head(run: Ended, subject: str, grades: Sequence[OpGrade], width: int, *, alone: bool) -> list[Text]:
    """Return subject, version, the counts of its ops and, for a single subject, the time."""
    if [grade.op for grade in grades] == [EVERY]:
        pieces = [named(run, subject), "did not start"]
    else:
        counts = [f"{count} {status}" for status, count in totals(grades).items()]
        judged = f"{len(grades)} {'op' if len(grades) == 1 else 'ops'} judged"
        pieces = [named(run, subject), judged, *counts]
        if not alone and all(grade.status == "correct" for grade in grades):
            pieces.append(strength(grades))
    time = duration(run.seconds) if alone and run.seconds is not None else ""
    head = wrapped(pieces, width, " · ")
    if time and cell_len(head[-1]) + 2 + len(time) <= width:
        head[-1] += time.rjust(width - cell_len(head[-1]))
    elif time:
        head.append(time.rjust(width))
    return [Text(line, style="bold") for line in head]


def duration(seconds: float) -> str:
    """Return seconds, or minutes from two on."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def strength(grades: Sequence[OpGrade]) -> str:
    """Return how strong passes are: `58 cases, 31 mutants would have been seen`."""
    cases = sum(grade.cases for grade in grades)
    mutants = {name for grade in grades for name in grade.mutants}
    words = f"{cases} {'case' if cases == 1 else 'cases'}"
    return f"{words}, {counted_mutants(mutants)} would have been seen" if mutants else words


def _rows(run: Ended, grades: Sequence[OpGrade], width: int, room: int) -> list[Text]:
    """Return a row for each op that is not correct, the worst first; the names of those beyond `room`."""
    bad = [grade for grade in grades if grade.status not in {"correct", "hardening"}]
    name = min(NAME, max((cell_len(one_line(grade.op)) for grade in bad[:room]), default=0))
    texts = [line for grade in bad[:room] for line in _row(run, grade, name, width)]
    for status in dict.fromkeys(grade.status for grade in bad[room:]):
        names = [one_line(grade.op) for grade in bad[room:] if grade.status == status]
        texts += _listed(status.upper(), status, ["also " + names[0], *names[1:]], width)
    return texts


def _row(run: Ended, grade: OpGrade, name: int, width: int) -> list[Text]:
    column, most = beside(len(MARGIN) + STATUS + name + 2, width, REASON)
    computes = diagnosis.words(run.diagnoses.get((grade.subject, grade.op)))
    rest = sentence(one_line(computes), width - column, most) if computes else []
    rest += sentence(f"{one_line(reason(grade))} ({grade.count})", width - column, most)
    if rest[-1].endswith(" …"):
        rest.append(f"({grade.count})")
    item = run.smallest.get((grade.subject, grade.op))
    if item is not None and (words := smallest.in_short(item)):
        rest += sentence(one_line(plainly(words)), width - column, most)
    first = Text(MARGIN)
    first.append(f"{grade.status.upper():{STATUS}}", style=STYLES[grade.status])
    first.append(one_line(grade.op))
    if first.cell_len + 2 <= column:
        first.append(" " * (column - first.cell_len) + rest.pop(0))
    texts = [first, *(Text(" " * column + line) for line in rest)]
    if item is not None:
        again = one_line(smallest.command(item, run.path.parent))
        indent = next((n for n in (column, len(MARGIN) + STATUS) if n + cell_len(again) <= width), len(MARGIN) * 2)
        texts.append(Text(" " * indent + again, style="dim"))
    return texts


def reason(grade: OpGrade) -> str:
    """Return why an op has its grade, and of a waived one who is responsible until when."""
    verdict = grade.verdict
    if waived := verdict.waived:
        return f"{waived.status}, waived until {waived.expires} by {waived.owner} ({waived.issue}): {waived.reason}"
    words = plainly(verdict.reason)
    cause = rare(verdict.gate, verdict.case) if verdict.status == "fragile" else ""
    return f"{cause}: {words}" if cause else words


def _listed(word: str, status: str, pieces: Sequence[str], width: int) -> list[Text]:
    """Return pieces after a word for their status, in lines that begin under the first piece."""
    texts = []
    for number, line in enumerate(wrapped(pieces, width - len(MARGIN) - STATUS, " · ")):
        text = Text(MARGIN)
        text.append(f"{'' if number else word:{STATUS}}", style=STYLES[status])
        text.append(line)
        texts.append(text)
    return texts


def _correct(grades: Sequence[OpGrade], width: int) -> list[Text]:
    right = [grade for grade in grades if grade.status == "correct"]
    if not right:
        return []
    texts = _listed("correct", "correct", in_short(right, grades), width)
    words = f"({strength(right)})"
    if texts[-1].cell_len + 1 + len(words) <= width:
        texts[-1].append(f" {words}", style="dim")
    else:
        texts.append(Text(" " * (len(MARGIN) + STATUS) + words, style="dim"))
    return texts


def _noted(grades: Sequence[OpGrade], width: int) -> list[Text]:
    """Return each note on arithmetic with the ops that it is about."""
    texts = []
    for note in dict.fromkeys(grade.note for grade in grades if grade.note):
        names = in_short([grade for grade in grades if grade.note == note], grades)
        texts += [
            Text(f"{MARGIN}{line}") for line in wrapped([f"{note}: {names[0]}", *names[1:]], width - len(MARGIN), " · ")
        ]
    return texts


def in_short(right: Sequence[OpGrade], grades: Sequence[OpGrade]) -> list[str]:
    """Return the names of correct ops; many variants of one op that are all correct are shown as their number."""
    whole = Counter(one_line(grade.op).partition("[")[0] for grade in grades)
    good = Counter(one_line(grade.op).partition("[")[0] for grade in right)
    names = []
    for grade in right:
        base = one_line(grade.op).partition("[")[0]
        short = good[base] == whole[base] > FEW
        names.append(f"{base} (all {whole[base]})" if short else one_line(grade.op))
    return list(dict.fromkeys(names))


def _hardening(run: Ended, grades: Sequence[OpGrade], width: int) -> list[Text]:
    """Return what costs no grade: input that no pipeline produces, and layouts that raise.

    Under `--strict`, which fails on these, also the commands that judge such an input again.
    """
    texts = []
    if words := ungraded.hardening(grades):
        texts += _block("hardening", sentence(f"{words} (-v, --strict)", width - len(MARGIN) - STATUS))
    for words in ungraded.raising(grades):
        texts += _block("raises", sentence(words, width - len(MARGIN) - STATUS, REASON))
    small = [
        run.smallest.get((grade.subject, grade.op)) for grade in grades if grade.status in {"correct", "hardening"}
    ]
    for item in small if run.fail_on == STRICT else ():
        if item is not None:
            texts.append(Text(MARGIN * 2 + one_line(smallest.command(item, run.path.parent)), style="dim"))
    return texts


def _left(run: Ended, subject: str, width: int) -> list[Text]:
    """Return how much of a single subject was not judged, and where to read more."""
    parts = not_judged.counted(run.grades.left, subject)
    if not parts:
        return []
    text = sentence(one_line(", ".join(parts)), width - len(MARGIN) - STATUS)
    return _block("not judged", text)


def _left_of_all(run: Ended, width: int) -> list[Text]:
    count = sum(run.grades.left.values())
    if not count:
        return []
    words = f"{count} cases: ops and conventions that subjects do not have (-v says which)"
    return _block("not judged", sentence(words, width - len(MARGIN) - STATUS))


def _block(word: str, text: Sequence[str]) -> list[Text]:
    return [
        Text.assemble(MARGIN, (f"{'' if number else word:{STATUS}}", STYLES[word]), line)
        for number, line in enumerate(text)
    ]


def _absent(run: Ended, subjects: Sequence[str], width: int) -> list[Text]:
    """Return a line for each reason why subjects were not judged at all."""
    sentences = []
    for subject in subjects:
        parts = not_judged.counted(run.grades.left, subject)
        sentences += sentence(f"{named(run, subject)} · not judged: {one_line(', '.join(parts))}", width, REASON)
    return [Text(line, style="yellow") for line in sentences]


def end(run: Ended, width: int, *, time: bool = True) -> list[Text]:
    """Return what else fails the run, the path of the results, and last the exit code with its reason."""
    more = len(run.problems) - MOST_PROBLEMS
    ending_lines = [line for words in run.problems[:MOST_PROBLEMS] for line in sentence(one_line(words), width)]
    if more > 0:
        ending_lines.append(f"and {more} more such (-v)")
    ending_lines += [line for words in run.unasked[:MOST_PROBLEMS] for line in sentence(one_line(words), width, REASON)]
    if len(run.unasked) > MOST_PROBLEMS:
        ending_lines.append(f"and {len(run.unasked) - MOST_PROBLEMS} more that were not judged (-v)")
    ending_lines += [line for words in (*_explained(run), *run.notes) for line in sentence(one_line(words), width)]
    ending_lines.append(one_line(f"results: {run.path}"))
    last = ending(run, run.grades.grades())
    if time and run.seconds is not None:
        last += f" ({duration(run.seconds)})"
    return [*map(Text, ending_lines), *(Text(line, style="bold") for line in sentence(last, width))]


def _explained(run: Ended) -> list[str]:
    """Return where to read more of the first failure."""
    failed = [grade for grade in run.grades.grades() if grade.status in FAILURES and grade.op != EVERY]
    failed.sort(key=lambda grade: BY_GRADE.index(grade.status))
    return (
        [f"gates explain {failed[0].verdict.gate} says what was asked, and where its limits come from"]
        if failed
        else []
    )


def ending(run: Ended, grades: Sequence[OpGrade]) -> str:
    """Return the exit code and its reason: `exit 1: 1 wrong`."""
    if run.exit_code is None:
        return run.state
    counts = totals(grades)
    fails = failing(run.fail_on)
    bad = [(status, n) for status, n in counts.items() if status in fails or status in {DEPARTS, "error"}]
    words = [f"{count} {status}" for status, count in bad]
    if run.fail_on == STRICT and (ungraded := sum(g.hardening[1] - g.hardening[0] + g.raising[0] for g in grades)):
        words.append(f"{ungraded} {'case' if ungraded == 1 else 'cases'} of hardening")
    if run.problems:
        words.append(f"{len(run.problems)} {'requirement' if len(run.problems) == 1 else 'requirements'} unmet")
    if run.exit_code == NOTHING:
        nothing = f"{len(run.unasked)} {'op' if len(run.unasked) == 1 else 'ops'} of the subject not judged"
        words = [nothing if grades else "nothing was judged"]
    if not words:
        words = [f"all {counts['correct']} correct" if len(counts) == 1 and "correct" in counts else "nothing wrong"]
        mild = [f"{count} {status}" for status, count in counts.items() if status in {*GRADES[1:], "waived"}]
        if mild:
            words[0] += f", {' and '.join(mild)}"
            words[0] += " (--strict fails on these)" if run.fail_on != STRICT else ""
    return f"exit {run.exit_code}: {', '.join(words)}"
