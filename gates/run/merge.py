"""Join the results files of all shards of one plan; a missing, repeated or foreign shard is an error."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from gates.model import STATUSES, ConfigurationError
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, HeaderRecord, PartRecord, PlanRecord, Record, SummaryRecord
from gates.run.differing import differing
from gates.run.plan import Names
from gates.run.session import FAILED, Tally
from gates.run.settle import only_choices, settled_lines, waivers_of
from gates.run.shards import digest, without
from gates.run.unasked import provided

SAME = (
    "verb",
    "tool",
    "commit",
    "dirty",
    "seed",
    "quick",
    "full",
    "fail_on",
    "definitions",
    "model",
    "gates",
    "subjects",
    "subject_files",
    "waivers",
)
REMEDY = "judge every shard of one plan with the same options and the same version of Gates"


def merge(runs: Sequence[Results], folder: Path | None = None) -> list[Record]:
    """Return the lines of the whole run, in an order that is independent of the order of the files.

    Counterexample files stay where the shards wrote them; their names become relative to `folder`, where the merged file
    will be written.
    """
    if not runs:
        raise ConfigurationError("merge needs the files of all shards; it got none")
    for run in runs:
        _whole(run)
    parts = sorted(runs, key=lambda run: (_plan(run).shard, str(run.path)))
    for run in parts[1:]:
        _alike(parts[0], run)
    _every_shard_once(parts)
    _every_case_once(parts)
    verdicts = [verdict for run in parts for verdict in run.verdicts]
    counterexamples = [_relative(folder, run.path.parent, record) for run in parts for record in run.counterexamples]
    diagnoses = list({(x.subject, x.op): x for run in parts for x in run.diagnoses}.values())
    settled = settled_lines(verdicts, differing(diagnoses), waivers_of(_header(parts)))
    return [_header(parts), *_distinct(parts), *verdicts, *counterexamples, *diagnoses, *settled, _summary(parts)]


def _relative(folder: Path | None, shard: Path, record: CounterexampleRecord) -> CounterexampleRecord:
    """Return a shard's record with file names relative to `folder`, so that `gates replay` finds it."""
    if folder is None or record.file is None:
        return record
    names = {"file": record.file, "subject_file": record.subject_file}
    moved = {
        field: Path(os.path.relpath(shard.resolve() / name, folder.resolve())).as_posix()
        for field, name in names.items()
        if name is not None
    }
    return record.model_copy(update=moved)


def _plan(run: Results) -> PlanRecord:
    if run.header.plan is None:
        raise ConfigurationError(f"{run.path} names no plan: it is no file of `gates check`, or of an older version")
    return run.header.plan


def _whole(run: Results) -> None:
    if run.header.verb != "check":
        raise ConfigurationError(f"{run.path} is of `gates {run.header.verb}`; shards are files of `gates check`")
    _plan(run)
    try:
        datetime.fromisoformat(run.header.started)
    except ValueError:
        raise ConfigurationError(f"{run.path} started {run.header.started[:40]!r}, which is no time") from None
    if run.header.merged:
        raise ConfigurationError(f"{run.path} is merged already; give the files of the shards")
    if run.summary is None:
        raise ConfigurationError(f"{run.path} is {run.state}; finish it with `gates check … --resume {run.path}`")


def _alike(first: Results, other: Results) -> None:
    for name in SAME:
        a, b = getattr(first.header, name), getattr(other.header, name)
        if a != b:
            raise ConfigurationError(
                f"{name} is {_short(a, b)} in {first.path} and {_short(b, a)} in {other.path}; {REMEDY}"
            )
    plan, other_plan = _plan(first), _plan(other)
    if plan.digest != other_plan.digest:
        raise ConfigurationError(
            f"the plan of {first.path} has {plan.cells} cases ({plan.digest[:12]}), "
            f"that of {other.path} {other_plan.cells} ({other_plan.digest[:12]}); {REMEDY}"
        )
    if plan.shards != other_plan.shards:
        raise ConfigurationError(
            f"{first.path} is one of {plan.shards} shards, {other.path} one of {other_plan.shards}; {REMEDY}"
        )


def _short(value: object, other: object) -> str:
    """Return a value as text; a list as its length and at most five items that `other` lacks."""
    if isinstance(value, list) and isinstance(other, list):
        more = [item for item in value if item not in other]
        return f"{len(value)} names" + (f" (with {', '.join(more[:5])})" if more else "")
    return str(value)


def _every_shard_once(parts: Sequence[Results]) -> None:
    files: dict[int, Results] = {}
    for run in parts:
        index = _plan(run).shard
        if index in files:
            raise ConfigurationError(f"{files[index].path} and {run.path} are both shard {index}; give each shard once")
        files[index] = run
    count = _plan(parts[0]).shards
    if missing := [str(index) for index in range(1, count + 1) if index not in files]:
        raise ConfigurationError(f"of {count} shards these are missing: {', '.join(missing)}")


def _every_case_once(parts: Sequence[Results]) -> None:
    seen: dict[Names, Results] = {}
    for run in parts:
        if len(run.verdicts) != run.header.planned:
            raise ConfigurationError(f"{run.path} has {len(run.verdicts)} verdicts, must have {run.header.planned}")
        for verdict in run.verdicts:
            names = (verdict.gate, verdict.subject, verdict.case)
            if names in seen:
                raise ConfigurationError(
                    f"{' · '.join(names)} is judged in {seen[names].path} and in {run.path}; each case must be judged once"
                )
            seen[names] = run
    plan = _plan(parts[0])
    if digest(seen) != plan.digest:
        raise ConfigurationError(
            f"the shards have {len(seen)} cases ({digest(seen)[:12]}), the plan {plan.cells} ({plan.digest[:12]}); "
            "a file was changed after it was written"
        )


def _header(parts: Sequence[Results]) -> HeaderRecord:
    first, plan = parts[0].header, _plan(parts[0])
    sources = [
        PartRecord(
            file=run.path.name,
            started=run.header.started,
            machine=run.header.machine,
            python=run.header.python,
            numpy=run.header.numpy,
            blas=run.header.blas,
        )
        for run in parts
    ]
    return first.model_copy(
        update={
            "command": without(first.command, "--shard"),
            "started": min(run.header.started for run in parts),
            "planned": plan.cells,
            "plan": PlanRecord(digest=plan.digest, cells=plan.cells),
            "merged": sources,
        }
    )


def _distinct(parts: Sequence[Results]) -> Iterator[Record]:
    """Yield the distinct subject and model records of all shards."""
    seen: list[Record] = []
    records: list[Record] = [subject for run in parts for subject in run.subjects]
    records += [model for run in parts for model in run.models]
    for record in records:
        if record not in seen:
            seen.append(record)
            yield record


def _summary(parts: Sequence[Results]) -> SummaryRecord:
    fail_on = parts[0].header.fail_on
    tally, waivers = Tally(fail_on=fail_on), waivers_of(_header(parts))
    for run in parts:
        tally.provides.update(provided(run.subjects))
        tally.differing |= differing(run.diagnoses)
        for verdict in run.verdicts:
            tally.add(verdict, waivers=waivers)
            waivers.note(verdict)
    summaries = [run.summary for run in parts if run.summary]
    failed = any(summary.exit_code == FAILED for summary in summaries)  # a shard did not meet a requirement
    stale = waivers.problems(only_choices(tally.wrong, tally.differing))
    problems = dict.fromkeys([*(problem for summary in summaries for problem in summary.problems), *stale])
    return SummaryRecord(
        counts={status: tally.counts[status] for status in STATUSES},
        seconds=round(sum(summary.seconds for summary in summaries), 3),
        exit_code=FAILED if failed or problems else tally.exit_code(),
        problems=list(problems),
        unasked=tally.unasked,
    )
