"""Grade each op of a subject: the worst of its verdicts, the reason that counts, and how strong a pass is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gates.model import NOT_JUDGED, Verdict, worst
from gates.report.failures import severity
from gates.report.labels import DEPARTS, shown
from gates.results.jsonl import Results
from gates.results.records import VerdictRecord

AnyVerdict = Verdict | VerdictRecord
Catalogue = Mapping[str, Collection[str]]  # of each gate the mutants that it catches, as a run's header records them
UNKNOWN: Catalogue = MappingProxyType({})  # of a run from before headers recorded them
Rank = tuple[int, bool, float, str, str]
ORDER = ("wrong", "fragile", "imprecise", "timeout", "error", DEPARTS, "waived", "correct")  # of rows
LEVELS = ("definition", "law", "rule", "robustness", "precision")  # the first explains most
EVERY = "every op"  # of a subject that did not start


@dataclass(frozen=True, slots=True)
class OpGrade:
    """The grade of one op of one subject, such as `policy_loss[grpo]`."""

    subject: str
    op: str
    status: str  # one of ORDER
    cases: int  # that were judged
    like: int  # of them with this status
    left: int  # cases that were not judged
    gates: tuple[str, ...]  # that judged it
    mutants: frozenset[str]  # that these gates catch; empty: the run did not record them
    verdict: AnyVerdict  # one with this status: the reason that counts

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
            "gates": list(self.gates),
            "mutants": len(self.mutants) or None,
            "gate": self.verdict.gate,
            "case": self.verdict.case,
            "reason": self.verdict.reason,
        }


@dataclass(slots=True)
class _Found:
    """The verdicts of one op so far."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, AnyVerdict] = field(default_factory=dict)  # of each shown status the one that counts
    ranks: dict[str, Rank] = field(default_factory=dict)  # of those verdicts
    gates: set[str] = field(default_factory=set)
    mutants: set[str] = field(default_factory=set)  # that these gates catch


@dataclass(slots=True)
class Grades:
    """Collects verdicts without mutants, one by one: it holds one verdict for each op and status."""

    left: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # not judged: subject, status, reason
    _ops: dict[tuple[str, str], _Found] = field(default_factory=lambda: defaultdict(_Found))

    @classmethod
    def of(cls, verdicts: Iterable[AnyVerdict], mutants: Catalogue = UNKNOWN) -> Grades:
        """Return the grades of the verdicts of one run."""
        found = cls()
        for verdict in verdicts:
            found.add(verdict, mutants)
        return found

    @classmethod
    def of_runs(cls, runs: Iterable[Results]) -> Grades:
        """Return the grades of the unmutated subjects of recorded runs."""
        found = cls()
        for run in runs:
            for verdict in run.judged:
                found.add(verdict, run.header.mutants)
        return found

    def add(self, verdict: AnyVerdict, mutants: Catalogue = UNKNOWN) -> None:
        """Count a verdict of a run with these mutants."""
        found = self._ops[verdict.subject, EVERY if verdict.cause == "start" else verdict.op or verdict.gate]
        status = shown(verdict)
        found.counts[status] += 1
        if verdict.status in NOT_JUDGED:
            self.left[verdict.subject, verdict.status, verdict.reason] += 1
            return
        found.gates.add(verdict.gate)
        found.mutants.update(mutants.get(verdict.gate, ()))
        rank = _rank(verdict)
        if status not in found.first or rank < found.ranks[status]:
            found.first[status], found.ranks[status] = verdict, rank

    @property
    def subjects(self) -> list[str]:
        """Return the subjects in the order in which they came."""
        return list(dict.fromkeys(subject for subject, _ in self._ops))

    def grades(self, subject: str | None = None) -> list[OpGrade]:
        """Return the grades of the ops that were judged, by subject, worst first, then by op."""
        found = [
            self._grade(name, op, counted)
            for (name, op), counted in self._ops.items()
            if counted.first and subject in {None, name}
        ]
        return sorted(found, key=lambda grade: (grade.subject, ORDER.index(grade.status), grade.op))

    def cases(self, subject: str) -> tuple[int, int, int]:
        """Return how many cases of a subject were judged, how many there are, and the number of ops without a judged one."""
        found = [counted for (name, _), counted in self._ops.items() if name == subject]
        every = sum(counted.counts.total() for counted in found)
        left = sum(count for (name, _, _), count in self.left.items() if name == subject)
        return every - left, every, sum(not counted.first for counted in found)

    @property
    def table(self) -> list[tuple[str, list[OpGrade | None]]]:
        """Return a row for each op that was judged, with the grade of each subject, by name."""
        found = {(grade.op, grade.subject): grade for grade in self.grades()}
        names = sorted({op for op, _ in found})
        return [(op, [found.get((op, subject)) for subject in sorted(self.subjects)]) for op in names]

    def _grade(self, subject: str, op: str, found: _Found) -> OpGrade:
        status = _worst(found.first)
        cases = sum(count for name, count in found.counts.items() if name not in NOT_JUDGED)
        return OpGrade(
            subject=subject,
            op=op,
            status=status,
            cases=cases,
            like=found.counts[status],
            left=found.counts.total() - cases,
            gates=tuple(sorted(found.gates)),
            mutants=frozenset(found.mutants),
            verdict=found.first[status],
        )


def counted_mutants(names: Collection[str]) -> str:
    """Return `31 mutants`."""
    return f"{len(names)} {'mutant' if len(names) == 1 else 'mutants'}"


def _worst(found: Mapping[str, AnyVerdict]) -> str:
    """Return the worst shown status; a documented deviation counts where nothing that is not documented is as bad."""
    statuses = {shown_as: verdict.status for shown_as, verdict in found.items()}
    bad = worst(list(statuses.values()))
    return bad if bad in found else next(name for name, status in statuses.items() if status == bad)


def _rank(verdict: AnyVerdict) -> Rank:
    """Return the order in which verdicts of one status explain it.

    Definitions first, wrong numbers before exceptions (an exception is often about one case), then what is furthest off.
    """
    number = verdict.cause in {"bound", "control", DEPARTS}
    return LEVELS.index(verdict.level), not number, -severity(verdict), verdict.gate, verdict.case


def totals(grades: Iterable[OpGrade]) -> dict[str, int]:
    """Return how many ops have each grade, worst first."""
    counts = Counter(grade.status for grade in grades)
    return {status: counts[status] for status in ORDER if counts[status]}
