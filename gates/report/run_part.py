"""The sections of the page's runs: who was judged, what came out, and each op with its cause and its smallest input."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gates.model import Gate, Op
from gates.report import diagnosis, not_judged, screen, ungraded
from gates.report.grades import Grades, OpGrade, totals
from gates.report.page_data import Run
from gates.report.plainly import plainly, rare
from gates.report.screen import Ended
from gates.report.small_input import SmallInput, small_input
from gates.report.statuses import BY_GRADE
from gates.results.records import CounterexampleRecord, DiagnosisRecord

VERBS = ("check", "prove", "calibrate")  # in the order of the page
FINE = ("correct", "hardening")
MOST_NAMES = 3  # subjects in the title of a run
UNKNOWN_EXIT = "Exit code "
AT_THE_TERMINAL = " (-v)"  # where more is said there


@dataclass(frozen=True, slots=True)
class OpPart:
    """An op that is not correct."""

    id: str
    grade: OpGrade
    cause: str  # what it computes instead, or the rare input on which it fails
    reason: str
    small: SmallInput | None
    base: str  # name of the op without its choices
    question: str  # of the gate that decided


@dataclass(frozen=True, slots=True)
class SubjectPart:
    """A subject of a run."""

    title: str  # name and version
    totals: Mapping[str, int]  # ops by grade
    ops: Sequence[OpPart]
    correct: Sequence[tuple[str, str]]  # names, and the ops that they are of
    notes: Sequence[str]
    not_judged: Sequence[str]
    measured: Sequence[str]  # how much was judged, and what costs no grade


@dataclass(frozen=True, slots=True)
class RunPart:
    """A run."""

    id: str
    run: Run
    title: str
    when: str  # and how long it took
    exit_code: int | None
    sentence: str
    subjects: Sequence[SubjectPart]


def run_parts(runs: Sequence[Run], ops: Mapping[str, Op], gates: Mapping[str, Gate]) -> list[RunPart]:
    """Return the runs, checks first and then proofs; in each of them the subject with the worst grade comes first.

    Args:
        runs: as they were read.
        ops: the ops that have a definition, by name.
        gates: whose questions are shown, by id.
    """
    numbered = sorted(enumerate(runs), key=lambda item: (VERBS.index(item[1].header.verb), item[0]))
    return [_run(f"run-{number + 1}", run, ops, gates) for number, run in numbered]


def _run(name: str, run: Run, ops: Mapping[str, Op], gates: Mapping[str, Gate]) -> RunPart:
    ended, header = _ended(run), run.header
    graded = {subject: run.grades.grades(subject) for subject in run.grades.subjects}
    order = sorted(graded, key=lambda subject: (not graded[subject], -screen.badness(graded[subject]), subject))
    subjects = [_subject(f"{name}-{number}", ended, subject, ops, gates) for number, subject in enumerate(order)]
    names = [subject.title for subject in subjects] or list(header.subjects)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    title = ", ".join(names[:MOST_NAMES]) + more
    return RunPart(
        name,
        run,
        title if header.verb == "check" else f"{header.verb}: {title}",
        _when(run),
        run.summary.exit_code if run.summary else None,
        _sentence(run, ended),
        subjects,
    )


def _ended(run: Run) -> Ended:
    return Ended(
        run.grades,
        run.path,
        {record.subject: record.versions for record in run.subjects},
        run.smallest,
        run.summary.problems if run.summary else (),
        fail_on=run.header.fail_on,
        exit_code=run.summary.exit_code if run.summary else None,
        state=run.state,
        diagnoses={(record.subject, record.op): record for record in run.diagnoses},
        unasked=run.summary.unasked if run.summary else (),
    )


def _when(run: Run) -> str:
    """Return the start of a run to the minute in UTC, or as it was recorded, and its duration."""
    started = run.header.started
    with contextlib.suppress(ValueError):
        started = f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return f"{started} · {screen.duration(run.summary.seconds)}" if run.summary else started


def _sentence(run: Run, ended: Ended) -> str:
    """Return what the exit code means, and why it is what it is."""
    result = run.outcome
    if run.summary is None:
        return run.state
    if run.header.verb == "check":
        words = screen.ending(ended, run.grades.grades()).partition(": ")[2]
    else:
        words = result.words.rpartition("; exit code")[0]
    return words if result.meaning.startswith(UNKNOWN_EXIT) else f"{result.meaning}: {words}"


def _subject(name: str, ended: Ended, subject: str, ops: Mapping[str, Op], gates: Mapping[str, Gate]) -> SubjectPart:
    grades = sorted(ended.grades.grades(subject), key=lambda grade: (BY_GRADE.index(grade.status), grade.op))
    parts = [
        _op(f"{name}-{number}", ended, grade, gates)
        for number, grade in enumerate(grade for grade in grades if grade.status not in FINE)
    ]
    fine = [grade for grade in grades if grade.status in FINE]
    labels = screen.in_short(fine, grades)
    return SubjectPart(
        screen.named(ended, subject),
        totals(grades),
        parts,
        [(label, base if (base := base_of(label)) in ops else "") for label in labels],
        _notes(fine),
        [part.removesuffix(AT_THE_TERMINAL) for part in not_judged.counted(ended.grades.left, subject)],
        list(_measured(ended.grades, subject, grades)),
    )


def _op(name: str, ended: Ended, grade: OpGrade, gates: Mapping[str, Gate]) -> OpPart:
    item: CounterexampleRecord | None = ended.smallest.get((grade.subject, grade.op))
    gate = gates.get(grade.verdict.gate)
    waived = grade.verdict.waived is not None
    return OpPart(
        name,
        grade,
        _cause(grade, ended.diagnoses.get((grade.subject, grade.op))),
        screen.reason(grade) if waived else plainly(grade.verdict.reason),
        small_input(item, ended.path.parent) if item else None,
        base_of(grade.op),
        gate.question if gate else "",
    )


def _cause(grade: OpGrade, record: DiagnosisRecord | None) -> str:
    if words := diagnosis.words(record):
        return words
    unusual = rare(grade.verdict.gate, grade.verdict.case) if grade.status == "fragile" else ""
    return f"fails on a rare input: {unusual}" if unusual else ""


def base_of(op: str) -> str:
    """Return the name of an op without its choices: `token_kl` of `token_kl[k3]`."""
    return re.split(r"[\[ ]", op, maxsplit=1)[0]


def _notes(grades: Sequence[OpGrade]) -> list[str]:
    """Return each note on arithmetic with the ops that it is about."""
    notes = dict.fromkeys(grade.note for grade in grades if grade.note)
    return [f"{note}: {', '.join(grade.op for grade in grades if grade.note == note)}" for note in notes]


def _measured(grades: Grades, subject: str, graded: Sequence[OpGrade]) -> list[str]:
    ran, every, _ = grades.cases(subject)
    lines = [f"{ran} of {every} cases judged"]
    right = [grade for grade in graded if grade.status == "correct"]
    if right:
        lines.append(f"of the correct ops: {screen.strength(right)}")
    if words := ungraded.hardening(graded):
        lines.append(f"hardening: {words}")
    return [*lines, *(f"raises: {words}" for words in ungraded.raising(graded))]
