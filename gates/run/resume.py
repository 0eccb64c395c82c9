"""Resume an interrupted run in its own file: judge only the cases without a verdict."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from gates.model import FAILURES, ConfigurationError, Evidence, Verdict, Waived
from gates.results.jsonl import Results, Writer, read
from gates.results.records import HeaderRecord, ResumeRecord, VerdictRecord
from gates.run.plan import Names, PlannedCase
from gates.run.shards import without

FREE = {"command", "started", "jobs", "mutants"}  # header fields that may differ in the resumed run
SEVERAL = ("gates", "subjects")
DIGESTS = {"subject_files": "file", "codes": "code"}
MOST = 3  # names in a refusal


@dataclass(frozen=True, slots=True)
class Resumed:
    """The state of an interrupted run, and a writer that appends to its file."""

    writer: Writer
    earlier: Results
    verdicts: tuple[Verdict, ...]
    left: list[PlannedCase]

    @property
    def complete(self) -> bool:
        """Whether the file has its summary: nothing is left to do."""
        return self.earlier.summary is not None

    @property
    def still_large(self) -> list[Verdict]:
        """The failures without a counterexample record, because the run was stopped before it shrank them."""
        done = {(record.gate, record.subject) for record in self.earlier.counterexamples}
        left = () if self.complete else self.verdicts
        return [v for v in left if v.status in FAILURES and (v.gate, v.subject) not in done]


def resume(path: Path, wanted: HeaderRecord, cases: Sequence[PlannedCase]) -> Resumed:
    """Open and lock a run's file to append to it; a torn last line is cut off.

    Raises:
        ConfigurationError: the file is not a run of the same plan, or another process is writing to it.
    """
    writer = Writer.again(path)
    try:
        earlier = read(path)
        _has_plan(path, earlier.header)
        refuse_other(path, earlier.header, wanted)
        done = _done(earlier, cases)
        if earlier.summary is None:
            writer.cut()
            writer.write(ResumeRecord(started=wanted.started, judged=len(done)))
    except BaseException:
        writer.close()
        raise
    left = [planned for planned in cases if planned.names not in done]
    return Resumed(writer, earlier, tuple(verdict(record) for record in earlier.verdicts), left)


def _done(earlier: Results, cases: Sequence[PlannedCase]) -> set[Names]:
    """Return the names of the judged cases, which must all be in this plan."""
    done = {(v.gate, v.subject, v.case) for v in earlier.verdicts}
    if strangers := done - {planned.names for planned in cases}:
        raise ConfigurationError(f"--resume {earlier.path}: {' · '.join(min(strangers))} is not in its header's plan")
    return done


def _has_plan(path: Path, recorded: HeaderRecord) -> None:
    if recorded.plan is None:
        raise ConfigurationError(
            f"--resume {path}: names no plan: it is no file of `gates check`, or of an older version"
        )
    if recorded.merged:
        raise ConfigurationError(f"--resume {path}: is merged from shards, and complete")


def refuse_other(path: Path, recorded: HeaderRecord, wanted: HeaderRecord, free: Collection[str] = FREE) -> None:
    """Compare the file's header with the one that this run would write: all that verdicts depend on must be equal."""
    for name in HeaderRecord.model_fields:
        was, now = getattr(recorded, name), getattr(wanted, name)
        if name in free or was == now:
            continue
        if name in SEVERAL:
            was, now = (sorted(set(a) - set(b)) or "nothing else" for a, b in ((was, now), (now, was)))
        if name in DIGESTS:
            changed = sorted(key for key in was | now if was.get(key) != now.get(key))
            more = f" and {len(changed) - MOST} more" if len(changed) > MOST else ""
            raise ConfigurationError(
                f"--resume {path}: the {DIGESTS[name]} of {', '.join(changed[:MOST])}{more} has changed since, and one run judges one version; "
                "begin another one without --resume"
            )
        raise ConfigurationError(
            f"--resume {path}: {name} was {was} and is {now}; go on with the command that began it, on the same "
            f"machine and commit: {command(recorded.command, path)}"
        )


def command(original: Sequence[str], path: Path) -> str:
    """Return the command that resumes a run in its own file, given the command that began it."""
    kept = [argument for argument in without(original, "--resume", "--out") if argument != "--record"]
    return shlex.join(["gates", *kept, "--resume", str(path)])


def verdict(record: VerdictRecord) -> Verdict:
    """Return the verdict of a results line."""
    evidence = tuple(
        Evidence(
            item.quantity, item.observed, item.relation, item.limit, item.because, item.where, item.role, item.level
        )
        for item in record.evidence
    )
    fields = record.model_dump(exclude={"record", "evidence", "mutant", "waived"})
    waived = Waived(**record.waived.model_dump()) if record.waived else None
    return Verdict(**fields, evidence=evidence, waived=waived)
