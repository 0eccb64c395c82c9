"""What changed between two recorded runs, case by case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gates.model import ConfigurationError
from gates.report.labels import shown
from gates.results.jsonl import Results
from gates.results.records import HeaderRecord, VerdictRecord

Kind = Literal["new failure", "fixed", "changed", "new", "gone"]
KINDS: tuple[Kind, ...] = ("new failure", "fixed", "changed", "new", "gone")
BAD = ("wrong", "fragile", "imprecise", "timeout", "departs", "error")
SETTINGS = ("seed", "quick", "full", "model", "tool", "numpy", "blas", "python")  # of a header: what else may matter

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
    old, new = ({_names(v): v for v in run.judged} for run in (before, after))
    judged = {(subject, gate) for subject in after.header.subjects for gate in after.header.gates}
    here = {names: verdict for names, verdict in old.items() if names[:2] in judged}
    parts = {kind: why for kind, run in (("new", before), ("gone", after)) if (why := _in_part(run))}
    found = [change for names in sorted({*here, *new}) if (change := _change(names, here.get(names), new.get(names)))]
    known = [change for change in found if change.kind not in parts]
    return Changes(
        since=before.path.name,
        started=before.header.started,
        commit=before.header.commit,
        settings=tuple(_settings(before.header, after.header)),
        changes=tuple(sorted(known, key=lambda change: KINDS.index(change.kind))),
        same=len({*here, *new}) - len(found),
        elsewhere=len(old) - len(here),
        unjudged=len(found) - len(known),
        parts=tuple(parts.values()),
    )


def _in_part(run: Results) -> str:
    """Return why a run may lack verdicts of its plan, or nothing if it is whole."""
    plan = run.header.plan
    if run.summary is None:
        return f"{run.path.name} is {run.state}"
    if plan is not None and plan.shards > 1:
        return f"{run.path.name} is shard {plan.shard} of {plan.shards}"
    return ""


def _names(verdict: VerdictRecord) -> Names:
    return verdict.subject, verdict.gate, verdict.case


def _change(names: Names, old: VerdictRecord | None, new: VerdictRecord | None) -> Change | None:
    before, after = (shown(verdict) if verdict else "" for verdict in (old, new))
    if before == after:
        return None
    kind: Kind = "changed"
    if after in BAD and before not in BAD:
        kind = "new failure"
    elif not before:
        kind = "new"
    elif not after:
        kind = "gone"
    elif after == "correct" and before in (*BAD, "waived"):
        kind = "fixed"
    return Change(kind, *names, before, after, new.reason if new else "")


def _settings(before: HeaderRecord, after: HeaderRecord) -> Iterator[tuple[str, str, str]]:
    for name in SETTINGS:
        then, now = getattr(before, name), getattr(after, name)
        if then != now:
            yield name, str(then), str(now)
    if before.machine != after.machine:
        yield "machine", before.machine.cpu, after.machine.cpu
