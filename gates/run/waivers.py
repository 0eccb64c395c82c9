"""Waivers: known failures that do not fail the run until a date. An unneeded waiver does fail it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gates.config.validation import nearest, read_toml, validated
from gates.model import FAILURES, ConfigurationError, Gate, Status, Subject, Verdict, Waived
from gates.registry import selects
from gates.results.records import VerdictRecord, Waiver, WaiverRecord

FILE = "gates.toml"
WAIVED: tuple[Status, ...] = (*sorted(FAILURES), "error")


def read(path: Path) -> list[Waiver]:
    """Return the `[[waivers]]` of a file, or raise with all of its mistakes."""
    values = read_toml(path)
    for name in values:
        if name != "waivers":
            raise ConfigurationError(f"{path} has no {name!r}{nearest(name, ['waivers'])}; legal is [[waivers]]")
    entries: Any = values.get("waivers", [])
    if not isinstance(entries, list):
        raise ConfigurationError(f"{path}: waivers must be tables, each headed [[waivers]]")
    return [validated(Waiver, entry, f"{path}: waiver {number}") for number, entry in enumerate(entries, 1)]


@dataclass(frozen=True, slots=True)
class Extent:
    """All gates and subjects of a project, and those that a run judges."""

    all_gates: tuple[Gate, ...]
    gates: tuple[Gate, ...]
    all_subjects: frozenset[str]
    subjects: frozenset[str]
    registered: frozenset[str]
    quick: bool

    @classmethod
    def of(
        cls,
        all_gates: Iterable[Gate],
        gates: Iterable[Gate],
        all_subjects: Iterable[Subject],
        subjects: Iterable[Subject],
        registered: Mapping[str, Subject],
        *,
        quick: bool,
    ) -> Extent:
        """Return the extent of a run."""
        named, judged = (frozenset(s.name for s in several) for several in (all_subjects, subjects))
        return cls(tuple(all_gates), tuple(gates), named, judged, frozenset(registered), quick)

    def whole(self, waiver: Waiver) -> bool:
        """Return whether a run judges everything that a waiver names, so that it can tell whether the waiver is needed."""
        if waiver.subject not in self.subjects and (
            waiver.subject in self.registered or self.all_subjects - self.subjects
        ):
            return False  # another run judges it
        named = {(g.id, c.name) for g in self.all_gates for c in g.cases if covers(waiver, g.id, c.name)}
        judged = {(g.id, c.name) for g in self.gates for c in g.cases if c.quick or not self.quick}
        if named:
            return named <= judged
        return {g.id for g in self.all_gates} <= {g.id for g in self.gates}  # it matches no existing case


def covers(waiver: Waiver, gate: str, case: str) -> bool:
    """Return whether a waiver matches a gate, by id, prefix or glob, and a case, by name or glob."""
    return selects(waiver.id, gate) and (case == waiver.case or fnmatchcase(case, waiver.case))


@dataclass(slots=True)
class Waivers:
    """The waivers of one run, with counts of the verdicts that each covers."""

    entries: Sequence[WaiverRecord] = ()
    today: date = date.max
    partial: bool = False  # a shard or a choice of cases, which cannot tell whether its waivers are needed
    met: list[Counter[Status]] = field(init=False)
    wrong: list[set[tuple[str, str]]] = field(init=False)  # of each waiver the subjects and wrong ops that it covers
    gates: set[str] = field(default_factory=set)
    subjects: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.met = [Counter() for _ in self.entries]
        self.wrong = [set() for _ in self.entries]

    def apply(self, verdict: Verdict) -> Verdict:
        """Note a verdict, and return it as `waived` if it failed and an unexpired waiver covers it."""
        self.note(verdict)
        waived = self.waived(verdict, verdict.status)
        return verdict if waived is None else replace(verdict, status="waived", waived=waived)

    def waived(self, verdict: Verdict | VerdictRecord, status: Status) -> Waived | None:
        """Return by which waiver a verdict of this status is waived, or None.

        A waiver that names a grade waives nothing else. A waiver of `differs` waits for the diagnosis of the op, since
        until then its verdicts are `wrong`.
        """
        for entry in self._covering(verdict):
            if entry.expires >= self.today and status in WAIVED and entry.grade in {None, status}:
                return Waived(status, entry.reason, entry.issue, entry.owner, entry.expires.isoformat())
        return None

    def _covering(self, verdict: Verdict | VerdictRecord) -> Iterator[WaiverRecord]:
        for entry in self.entries:
            if entry.subject == verdict.subject and covers(entry, verdict.gate, verdict.case):
                yield entry

    def note(self, verdict: Verdict | VerdictRecord) -> None:
        """Count a verdict by its status without waivers, for each waiver that covers it."""
        self.gates.add(verdict.gate)
        self.subjects.add(verdict.subject)
        status = verdict.waived.status if verdict.waived else verdict.status
        covering = list(self._covering(verdict))
        for entry, met, wrong in zip(self.entries, self.met, self.wrong, strict=True):
            if entry in covering:
                met[status] += 1
                if status == "wrong":
                    wrong.add((verdict.subject, verdict.op))

    def problems(self, differing: frozenset[tuple[str, str]] = frozenset()) -> list[str]:
        """Return a sentence for each waiver that fails the run: expired, unmatched or no longer needed.

        Args:
            differing: subjects and wrong ops that make another choice.
        """
        problems = []
        for entry, counted, wrong in zip(self.entries, self.met, self.wrong, strict=True):
            met = counted + Counter[Status]({"differs": len(wrong & differing)})
            needed = (*WAIVED, "skipped") if entry.grade is None else (entry.grade, "skipped")
            name = f"the waiver of {entry.id}{'' if entry.case == '*' else f' · {entry.case}'} for {entry.subject}"
            name += f", grade {entry.grade}" if entry.grade else ""
            where = f"{name} ({entry.owner}, {entry.issue})"
            if entry.expires < self.today:
                problems.append(f"{where} expired on {entry.expires}: fix what it waives, or argue for another date")
            elif self.partial or not entry.whole or any(met[status] for status in needed):
                continue
            elif not met:
                hint = "" if entry.subject in self.subjects else nearest(entry.subject, self.subjects)
                hint = hint or ("" if entry.id in self.gates else nearest(entry.id, self.gates))
                problems.append(f"{where} matches no verdict of this run{hint}: correct or remove it")
            else:
                counts = ", ".join(f"{count} {status}" for status, count in sorted(met.items()))
                fails = f"is {entry.grade}" if entry.grade else "fails"
                problems.append(f"{where} is no longer needed, since nothing it names {fails} ({counts}): remove it")
        return problems
