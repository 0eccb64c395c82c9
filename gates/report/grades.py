"""Grade each op of a subject: the worst of its verdicts, the reason that counts, and how strong a pass is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gates.model import NOT_JUDGED, Verdict, worst
from gates.report.failures import severity
from gates.report.labels import DEPARTS, note, shown
from gates.report.statuses import BY_GRADE
from gates.results.jsonl import Results
from gates.results.records import DiagnosisRecord, VerdictRecord
from gates.run.settle import settled, settled_run
from gates.run.waivers import Waivers

AnyVerdict = Verdict | VerdictRecord
Catalogue = Mapping[str, Collection[str]]  # of each gate the mutants that it catches, as a run's header records them
UNKNOWN: Catalogue = MappingProxyType({})  # of a run from before headers recorded them
Rank = tuple[int, bool, float, str, str]
LEVELS = ("definition", "law", "rule", "robustness", "precision", "hardening")  # the first explains most
EVERY = "every op"  # of a subject that did not start


@dataclass(frozen=True, slots=True)
class OpGrade:
    """The grade of one op of one subject, such as `policy_loss[grpo]`."""

    subject: str
    op: str
    status: str  # one of BY_GRADE
    cases: int  # that were judged, without those at level hardening that do not hold
    like: int  # of them with this status
    left: int  # cases that were not judged
    gates: tuple[str, ...]  # that judged it
    mutants: frozenset[str]  # that these gates catch; empty: the run did not record them
    verdict: AnyVerdict  # one with this status: the reason that counts
    hardening: tuple[int, int] = (0, 0)  # cases at this level that hold, and all of them
    raising: tuple[int, str, str] = (
        0,
        "",
        "",
    )  # exceptions that cost no grade: number, the most common one, a case with it
    note: str = ""  # on its arithmetic, observed in any case

    @property
    def count(self) -> str:
        """Return `12 of 12 cases`, or `12 cases` if all are correct."""
        words = f"{self.cases} {'case' if self.cases == 1 else 'cases'}"
        return words if self.status == "correct" else f"{self.like} of {words}"

    @property
    def seen(self) -> str:
        """Return `31 mutants`."""
        return counted_mutants(self.mutants)

    def record(self) -> dict[str, Any]:
        """Return this grade as a JSON value."""
        return {
            "subject": self.subject,
            "op": self.op,
            "grade": self.status,
            "cases": self.cases,
            "of_this_grade": self.like,
            "not_judged": self.left,
            "hardening": {"hold": self.hardening[0], "cases": self.hardening[1]},
            "raising": {"cases": self.raising[0], "reason": self.raising[1], "case": self.raising[2]},
            "gates": list(self.gates),
            "mutants": len(self.mutants) or None,
            "gate": self.verdict.gate,
            "case": self.verdict.case,
            "reason": self.verdict.reason,
            "note": self.note or None,
        }


@dataclass(slots=True)
class _OpVerdicts:
    """The verdicts of one op so far."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, AnyVerdict] = field(default_factory=dict)  # of each shown status the one that counts
    ranks: dict[str, Rank] = field(default_factory=dict)  # of those verdicts
    gates: set[str] = field(default_factory=set)
    mutants: set[str] = field(default_factory=set)  # that these gates catch
    hardening: Counter[bool] = field(default_factory=Counter)  # of the cases at this level, which hold
    raising: Counter[str] = field(default_factory=Counter)  # exceptions that cost no grade
    raised_in: dict[str, str] = field(default_factory=dict)  # of each exception the first case
    levels: set[str] = field(default_factory=set)  # of wrong verdicts
    note: str = ""


@dataclass(slots=True)
class Grades:
    """Collects verdicts without mutants, one by one: it holds one verdict for each op and status."""

    left: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # not judged: subject, status, reason
    differing: frozenset[tuple[str, str]] = frozenset()  # subjects and wrong ops that make another known choice
    _ops: dict[tuple[str, str], _OpVerdicts] = field(default_factory=lambda: defaultdict(_OpVerdicts))

    @classmethod
    def of(
        cls,
        verdicts: Iterable[AnyVerdict],
        mutants: Catalogue = UNKNOWN,
        diagnoses: Iterable[DiagnosisRecord] = (),
        waivers: Waivers | None = None,
    ) -> Grades:
        """Return the grades of the verdicts of one run; `waivers` may waive an op that makes another choice."""
        grades = cls()
        for verdict in settled(verdicts, diagnoses, waivers):
            grades.add(verdict, mutants)
        return grades

    @classmethod
    def of_runs(cls, runs: Iterable[Results]) -> Grades:
        """Return the grades of the unmutated subjects of recorded runs."""
        grades = cls()
        for run in map(settled_run, runs):
            for verdict in run.judged:
                grades.add(verdict, run.header.mutants)
        return grades

    def add(self, verdict: AnyVerdict, mutants: Catalogue = UNKNOWN) -> None:
        """Count a verdict of a run with these mutants."""
        op = self._ops[verdict.subject, EVERY if verdict.cause == "start" else verdict.op or verdict.gate]
        status = shown(verdict)
        op.counts[status] += 1
        if verdict.status in NOT_JUDGED:
            self.left[verdict.subject, verdict.status, verdict.reason] += 1
            return
        if verdict.status == "hardening" and verdict.cause == "raised":
            op.raising[verdict.reason] += 1
            op.raised_in.setdefault(verdict.reason, f"{verdict.gate} · {verdict.case}")
        elif verdict.level == "hardening":
            op.hardening[verdict.status != "hardening"] += 1
        if verdict.status == "wrong":
            op.levels.add(verdict.level)
        op.gates.add(verdict.gate)
        op.mutants.update(mutants.get(verdict.gate, ()))
        op.note = op.note or note(verdict)
        rank = _rank(verdict)
        if status not in op.first or rank < op.ranks[status]:
            op.first[status], op.ranks[status] = verdict, rank

    @property
    def subjects(self) -> list[str]:
        """Return the subjects in the order in which they came."""
        return list(dict.fromkeys(subject for subject, _ in self._ops))

    def grades(self, subject: str | None = None) -> list[OpGrade]:
        """Return the grades of the ops that were judged, by subject, worst first, then by op."""
        grades = [
            self._grade(name, op, verdicts)
            for (name, op), verdicts in self._ops.items()
            if verdicts.first and subject in {None, name}
        ]
        return sorted(grades, key=lambda grade: (grade.subject, BY_GRADE.index(grade.status), grade.op))

    def cases(self, subject: str) -> tuple[int, int, int]:
        """Return how many cases of a subject were judged, how many there are, and the number of ops without a judged one."""
        ops = [verdicts for (name, _), verdicts in self._ops.items() if name == subject]
        every = sum(verdicts.counts.total() for verdicts in ops)
        left = sum(count for (name, _, _), count in self.left.items() if name == subject)
        return every - left, every, sum(not verdicts.first for verdicts in ops)

    @property
    def table(self) -> list[tuple[str, list[OpGrade | None]]]:
        """Return a row for each op that was judged, with the grade of each subject, by name."""
        grades = {(grade.op, grade.subject): grade for grade in self.grades()}
        names = sorted({op for op, _ in grades})
        return [(op, [grades.get((op, subject)) for subject in sorted(self.subjects)]) for op in names]

    def _grade(self, subject: str, op: str, verdicts: _OpVerdicts) -> OpGrade:
        worst_shown = _worst(verdicts.first)
        known = (subject, op) in self.differing and verdicts.levels == {"definition"}
        judged = sum(count for name, count in verdicts.counts.items() if name not in NOT_JUDGED)
        raising = verdicts.raising.most_common(1)
        return OpGrade(
            subject=subject,
            op=op,
            status="differs" if worst_shown == "wrong" and known else worst_shown,
            cases=judged if worst_shown == "hardening" else judged - verdicts.counts["hardening"],
            like=verdicts.counts[worst_shown],
            left=verdicts.counts.total() - judged,
            gates=tuple(sorted(verdicts.gates)),
            mutants=frozenset(verdicts.mutants),
            verdict=verdicts.first[worst_shown],
            hardening=(verdicts.hardening[True], verdicts.hardening.total()),
            raising=(
                verdicts.raising.total(),
                *((raising[0][0], verdicts.raised_in[raising[0][0]]) if raising else ("", "")),
            ),
            note=verdicts.note,
        )


def counted_mutants(names: Collection[str]) -> str:
    """Return `31 mutants`."""
    return f"{len(names)} {'mutant' if len(names) == 1 else 'mutants'}"


def _worst(shown_verdicts: Mapping[str, AnyVerdict]) -> str:
    """Return the worst shown status; a documented deviation only if no undocumented failure is as bad."""
    statuses = {shown_as: verdict.status for shown_as, verdict in shown_verdicts.items()}
    bad = worst(list(statuses.values()))
    return bad if bad in shown_verdicts else next(name for name, status in statuses.items() if status == bad)


def _rank(verdict: AnyVerdict) -> Rank:
    """Return the order in which verdicts of one status explain it.

    Definitions first, wrong numbers before exceptions (an exception is often about one case), then what is furthest off.
    """
    number = verdict.cause in {"bound", "control", DEPARTS}
    return LEVELS.index(verdict.level), not number, -severity(verdict), verdict.gate, verdict.case


def totals(grades: Iterable[OpGrade]) -> dict[str, int]:
    """Return how many ops have each grade, worst first."""
    counts = Counter(grade.status for grade in grades)
    return {status: counts[status] for status in BY_GRADE if counts[status]}
