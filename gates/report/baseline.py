"""What changed between two recorded runs, case by case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gates.model import GRADES, NOT_JUDGED, ConfigurationError
from gates.report.labels import shown
from gates.results.jsonl import Results
from gates.results.records import HeaderRecord, VerdictRecord
from gates.run.settle import settled_run

Kind = Literal["new failure", "newly visible", "worse", "better", "fixed", "changed", "new", "gone"]
KINDS: tuple[Kind, ...] = ("new failure", "newly visible", "worse", "better", "fixed", "changed", "new", "gone")
BAD = (*GRADES[2:], "timeout", "departs", "error")  # hardening costs no grade
UNSEEN = frozenset(("", *NOT_JUDGED))  # nothing was known of the case: its failure may be old
SETTINGS = ("seed", "quick", "full", "fail_on", "model", "tool", "numpy", "blas", "python")  # what else may matter

Names = tuple[str, str, str]  # subject, gate, case


@dataclass(frozen=True, slots=True)
class Change:
    """One case whose verdict changed; `before` or `after` is empty where it was not judged."""

    kind: Kind
    subject: str
    gate: str
    case: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since a recorded run."""

    since: str
    started: str
    commit: str | None
    settings: tuple[tuple[str, str, str], ...]  # name, then, now: settings in which the runs differ
    changes: tuple[Change, ...]
    same: int
    elsewhere: int  # cases of the baseline whose gate or subject this run did not have
    definitions: tuple[str, str] | None = None  # their versions then and now, if they differ
    unjudged: int = 0  # cases that one run judged and the other, interrupted or a shard, may not have reached
    parts: tuple[str, ...] = ()  # which of the two is incomplete, and why

    def of(self, kind: Kind) -> list[Change]:
        """Return the changes of one kind."""
        return [change for change in self.changes if change.kind == kind]


def compare(before: Results, after: Results) -> Changes:
    """Return what changed; cases are matched by subject, gate and case, whatever their seed."""
    for run in (before, after):
        if run.header.verb != "check":
            raise ConfigurationError(
                f"{run.path} is a run of `gates {run.header.verb}`: only runs of `gates check` are compared"
            )
    old, new = ({_names(v): v for v in run.judged} for run in map(settled_run, (before, after)))
    judged = {(subject, gate) for subject in after.header.subjects for gate in after.header.gates}
    here = {names: verdict for names, verdict in old.items() if names[:2] in judged}
    parts = {kind: why for kind, run in (("new", before), ("gone", after)) if (why := _in_part(run))}
    versions = (before.header.definitions, after.header.definitions)
    redefined = versions[0] != versions[1]
    changes = [
        change
        for names in sorted({*here, *new})
        if (change := _change(names, here.get(names), new.get(names), redefined=redefined))
    ]
    known = [change for change in changes if change.kind not in parts]
    return Changes(
        since=before.path.name,
        started=before.header.started,
        commit=before.header.commit,
        settings=tuple(_settings(before.header, after.header)),
        changes=tuple(sorted(known, key=lambda change: KINDS.index(change.kind))),
        same=len({*here, *new}) - len(changes),
        elsewhere=len(old) - len(here),
        definitions=versions if redefined else None,
        unjudged=len(changes) - len(known),
        parts=tuple(parts.values()),
    )


def _in_part(run: Results) -> str:
    """Return why a run may lack verdicts of its plan; empty if it has all of them."""
    plan = run.header.plan
    if run.summary is None:
        return f"{run.path.name} is {run.state}"
    if plan is not None and plan.shards > 1:
        return f"{run.path.name} is shard {plan.shard} of {plan.shards}"
    return ""


def _names(verdict: VerdictRecord) -> Names:
    return verdict.subject, verdict.gate, verdict.case


def _change(
    names: Names, old: VerdictRecord | None, new: VerdictRecord | None, *, redefined: bool = False
) -> Change | None:
    before, after = (shown(verdict) if verdict else "" for verdict in (old, new))
    if before == after:
        return None
    kind = _kind(before, after)
    if redefined and before and after:
        kind = "changed"  # by what is asked, so nothing is known of the subject
    return Change(kind, *names, before, after, new.reason if new else "")


def _kind(before: str, after: str) -> Kind:
    if after in BAD and before not in BAD:
        return "newly visible" if before in UNSEEN else "new failure"
    if not before or not after:
        return "gone" if before else "new"
    if after == "correct" and before in (*BAD, "waived"):
        return "fixed"
    if before in GRADES and after in GRADES:
        ranks: Sequence[str] = GRADES
        return "worse" if ranks.index(after) > ranks.index(before) else "better"
    return "changed"


def _settings(before: HeaderRecord, after: HeaderRecord) -> Iterator[tuple[str, str, str]]:
    for name in SETTINGS:
        then, now = getattr(before, name), getattr(after, name)
        if then != now:
            yield name, str(then), str(now)
    if before.machine != after.machine:
        yield "machine", before.machine.cpu, after.machine.cpu
