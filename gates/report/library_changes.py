"""What differs between two records of a library: grades, findings, and public names; for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from gates.report.statuses import BY_GRADE
from gates.report.wrap import columns, wrapped
from gates.results.conformance_records import ConformanceHeader, ConformanceResults, FindingRecord, GradeRecord
from gates.results.escape import one_line

MOST = 8  # entries of a group on the screen
INDENT = "  "


@dataclass(frozen=True, slots=True)
class GradeChange:
    """An op of the library or of a variant whose grade differs; "" where one record does not judge it."""

    subject: str
    op: str
    before: str
    after: str
    why: str  # findings, diagnosis or reason of the worse of both


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding of one record alone, or whose program shows it in one record alone."""

    id: str
    kind: str
    says: str


@dataclass(frozen=True, slots=True)
class NameChange:
    """A public name of one record alone, or with another status."""

    source: str
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class LibraryChanges:
    """The differences of two records of one library."""

    before: ConformanceHeader
    after: ConformanceHeader
    worse: list[GradeChange]
    better: list[GradeChange]
    newly_judged: list[GradeChange]
    no_longer_judged: list[GradeChange]
    no_longer_reproduced: list[FindingChange]
    reproduced_again: list[FindingChange]
    findings_added: list[FindingChange]
    findings_removed: list[FindingChange]
    names_added: list[NameChange]
    names_removed: list[NameChange]
    statuses_changed: list[NameChange]

    def groups(self) -> Mapping[str, Sequence[Any]]:
        """Return the differences by type."""
        return {name: getattr(self, name) for name in TITLES}

    def __bool__(self) -> bool:
        """Return whether anything differs but versions and dates."""
        return any(self.groups().values())


TITLES = {  # in the order of the screen
    "worse": "grades that became worse",
    "better": "grades that became better",
    "newly_judged": "ops judged now",
    "no_longer_judged": "ops no longer judged",
    "no_longer_reproduced": "findings that no longer reproduce",
    "reproduced_again": "findings that reproduce again",
    "findings_added": "findings added",
    "findings_removed": "findings removed",
    "names_added": "public names added",
    "names_removed": "public names removed",
    "statuses_changed": "public names with another status",
}


def compared(before: ConformanceResults, after: ConformanceResults) -> LibraryChanges:
    """Return what differs between two records of one library."""
    grades = list(_grades(before, after))
    old, new = ({finding.id: finding for finding in record.findings} for record in (before, after))
    both = [(old[id_], new[id_]) for id_ in old if id_ in new]
    names = list(_names(before, after))
    return LibraryChanges(
        before.header,
        after.header,
        worse=[change for change in grades if change.before and change.after and _rank(change) < 0],
        better=[change for change in grades if change.before and change.after and _rank(change) > 0],
        newly_judged=[change for change in grades if not change.before],
        no_longer_judged=[change for change in grades if not change.after],
        no_longer_reproduced=[_finding(now) for was, now in both if was.reproduced and now.reproduced is False],
        reproduced_again=[_finding(now) for was, now in both if was.reproduced is False and now.reproduced],
        findings_added=[_finding(new[id_]) for id_ in new if id_ not in old],
        findings_removed=[_finding(old[id_]) for id_ in old if id_ not in new],
        names_added=[name for name in names if name.before == ABSENT],
        names_removed=[name for name in names if name.after == ABSENT],
        statuses_changed=[name for name in names if ABSENT not in {name.before, name.after}],
    )


ABSENT = "absent"


def _grades(before: ConformanceResults, after: ConformanceResults) -> Iterator[GradeChange]:
    old, new = ({(grade.subject, grade.op): grade for grade in record.grades} for record in (before, after))
    for key in sorted({*old, *new}):
        was, now = old.get(key), new.get(key)
        then, later = (grade.grade if grade else "" for grade in (was, now))
        if then != later:
            worse = min((grade for grade in (now, was) if grade), key=lambda grade: BY_GRADE.index(grade.grade))
            yield GradeChange(*key, then, later, _why(worse))


def _why(grade: GradeRecord) -> str:
    return ", ".join(grade.findings) or grade.computes or grade.reason


def _rank(change: GradeChange) -> int:
    """Return how much better the grade has become; below 0 if it is worse."""
    return BY_GRADE.index(change.after) - BY_GRADE.index(change.before)


def _finding(finding: FindingRecord) -> FindingChange:
    return FindingChange(finding.id, finding.kind, finding.says)


def _names(before: ConformanceResults, after: ConformanceResults) -> Iterator[NameChange]:
    old, new = ({(row.source, row.name): row.status or "no row" for row in r.coverage} for r in (before, after))
    for source, name in dict.fromkeys([*old, *new]):
        then, now = (statuses.get((source, name), ABSENT) for statuses in (old, new))
        if then != now:
            yield NameChange(source, name, then, now)


def screen(changes: LibraryChanges) -> Iterator[str]:
    """Yield lines for a terminal: what was compared, a few entries of each group, and the counts."""
    before, after, width = changes.before, changes.after, columns()
    yield f"{after.peer} {before.version} ({before.started[:10]}) → {after.version} ({after.started[:10]})"
    if before.definitions != after.definitions:
        yield f"definitions {before.definitions} → {after.definitions}: a changed grade may come from them"
    if before.quick or after.quick:
        yield "one record has the quick cases alone: an op may be absent, and a grade better, for that reason"
    for name, entries in changes.groups().items():
        if entries:
            yield f"{TITLES[name]}: {len(entries)}"
            yield from _listed(entries, width)
    counts = [f"{len(entries)} {TITLES[name]}" for name, entries in changes.groups().items() if entries]
    yield from wrapped(counts or ["nothing changed"], width, " · ")


def _listed(entries: Sequence[Any], width: int) -> Iterator[str]:
    """Yield the first entries of a group; names share lines."""
    if isinstance(entries[0], NameChange):
        words = [_words(entry) for entry in islice(entries, 3 * MOST)]
        words += [f"{len(entries) - len(words)} more"] if len(entries) > len(words) else []
        yield from (INDENT + line for line in wrapped(words, width - len(INDENT), ", "))
        return
    for entry in islice(entries, MOST):
        first, *rest = wrapped(_words(entry).split(), width - 2 * len(INDENT), " ", most=3)
        yield INDENT + first
        yield from (2 * INDENT + line for line in rest)
    if len(entries) > MOST:
        yield f"{INDENT}{len(entries) - MOST} more; --json has all"


def _words(entry: Any) -> str:
    return one_line(WORDS[type(entry)](entry))


WORDS: Mapping[type, Callable[[Any], str]] = {
    GradeChange: lambda c: (
        f"{c.op} of {c.subject}: {c.before or 'not judged'} → {c.after or 'not judged'}"
        + (f": {c.why}" if c.why else "")
    ),
    FindingChange: lambda c: f"{c.id} ({c.kind}): {c.says}",
    NameChange: lambda c: (
        f"{c.source.partition(' ')[2]}.{c.name}"
        + ("" if ABSENT in {c.before, c.after} else f" ({c.before} → {c.after})")
    ),
}


def document(changes: LibraryChanges) -> dict[str, Any]:
    """Return the differences as a JSON value."""
    versions = {
        when: {"version": header.version, "started": header.started, "definitions": header.definitions}
        for when, header in (("before", changes.before), ("after", changes.after))
    }
    groups = {name: [asdict(entry) for entry in entries] for name, entries in changes.groups().items()}
    return {"peer": changes.after.peer, **versions, "changed": bool(changes), **groups}
