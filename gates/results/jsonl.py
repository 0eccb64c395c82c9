"""Write and read results files: append-only JSONL, one write per line, readable after a kill at any moment."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import gzip
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from gates.errors import ConfigurationError, FaultError, fault, scarce, sentence, unwritable
from gates.results import old_format, read_lines
from gates.results.atomic_write import write_whole
from gates.results.calibration_records import CalibrationRecord
from gates.results.damage import no_record, problem_of
from gates.results.integrity import Integrity
from gates.results.records import (
    FORMAT,
    RECORD,
    CounterexampleRecord,
    DiagnosisRecord,
    HeaderRecord,
    ModelRecord,
    MutantRecord,
    Record,
    ResumeRecord,
    SensitivityRecord,
    SettledRecord,
    SubjectRecord,
    SummaryRecord,
    VerdictRecord,
)

CHUNK = 1 << 16  # bytes searched at once for the last newline


def as_line(record: Record) -> str:
    """Return a record as its line, newline included."""
    return record.model_dump_json() + "\n"


class Writer:
    """Appends records to a new file, or with `again` to an existing one; a lock keeps other processes out."""

    def __init__(self, path: Path, *, new: bool = True) -> None:
        self.path = path
        try:
            if new:
                path.parent.mkdir(parents=True, exist_ok=True)
            how = os.O_CREAT | os.O_EXCL if new else os.O_NONBLOCK  # do not wait on a pipe
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | how, 0o644)
        except OSError as error:
            if new:
                raise unwritable(f"results to {path}", error, "choose a folder for results with --out") from None
            if scarce(error):
                raise FaultError(sentence(f"cannot resume {path}", error)) from None
            message = f"cannot resume {path}: {error.strerror}; name the file of an interrupted run"
            raise ConfigurationError(message) from None
        try:
            self._own()
        except BaseException:
            os.close(self._fd)
            raise

    @classmethod
    def again(cls, path: Path) -> Writer:
        """Open the file of an interrupted run."""
        return cls(path, new=False)

    def _own(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise ConfigurationError(f"cannot write results to {self.path}: is no regular file")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released whenever this process ends
        except BlockingIOError:
            raise ConfigurationError(f"{self.path}: another process is writing to it; wait for its end") from None
        except OSError:  # a file system without locks
            return

    def cut(self) -> None:
        """Remove an incomplete last line, which a kill leaves."""
        end = os.fstat(self._fd).st_size
        while end:
            start = max(0, end - CHUNK)
            newline = os.pread(self._fd, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        os.ftruncate(self._fd, end)

    def write(self, *records: Record) -> None:
        """Append lines in one write.

        Raises:
            FaultError: a line cannot be written; the file then ends with the line before it, and an empty file is removed.
        """
        data = "".join(map(as_line, records)).encode()
        try:
            if os.fstat(self._fd).st_nlink == 0:  # writes to a removed file succeed and are lost
                raise FaultError(
                    f"cannot write results to {self.path}: it was removed while the run wrote to it; begin the run again"
                )
            while data:  # a signal may cut a write short
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self.cut()
                if os.fstat(self._fd).st_size == 0:
                    self.path.unlink()
            raise fault(f"cannot write results to {self.path}", error) from None

    def close(self) -> None:
        """Flush everything to disk and close the file."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise fault(f"cannot write results to {self.path}", error) from None
        finally:
            os.close(self._fd)


def compress(path: Path) -> Path:
    """Replace a complete results file by its gzip form, which readers accept as well, and return its path.

    A recorded run shrinks from 20 MB to 1 MB. The same lines give the same bytes.
    """
    packed = path.with_name(f"{path.name}.gz")
    write_whole(packed, gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return packed


@dataclass(slots=True)
class Results:
    """The records of a results file, by type."""

    path: Path
    header: HeaderRecord
    subjects: list[SubjectRecord] = field(default_factory=list)
    models: list[ModelRecord] = field(default_factory=list)
    verdicts: list[VerdictRecord] = field(default_factory=list)
    mutants: list[MutantRecord] = field(default_factory=list)
    sensitivities: list[SensitivityRecord] = field(default_factory=list)
    counterexamples: list[CounterexampleRecord] = field(default_factory=list)
    diagnoses: list[DiagnosisRecord] = field(default_factory=list)
    settled: list[SettledRecord] = field(default_factory=list)
    resumes: list[ResumeRecord] = field(default_factory=list)
    calibrations: list[CalibrationRecord] = field(default_factory=list)
    summary: SummaryRecord | None = None

    @property
    def judged(self) -> list[VerdictRecord]:
        """The verdicts on unmutated subjects."""
        return [verdict for verdict in self.verdicts if verdict.mutant is None]

    @property
    def state(self) -> str:
        """`complete`, or how far the run came: `incomplete: 12 of 40`."""
        if self.summary is not None:
            return "complete"
        judged = self.count + sum(line.verdicts for line in self.calibrations)
        return f"incomplete: {judged} of {self.header.planned}"

    @property
    def count(self) -> int:
        """How many verdicts there are, those on mutated subjects included."""
        return len(self.verdicts)

    def add(self, record: Record) -> None:
        """Append a record that follows the header to the list of its type."""
        if isinstance(record, SummaryRecord):
            self.summary = record
        elif name := LISTS.get(type(record)):
            getattr(self, name).append(record)


def file_name(verb: str, now: datetime | None = None) -> str:
    """Return a unique name that sorts by time and has no colon."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    return f"{verb}-{stamp}-{secrets.token_hex(4)}.jsonl"


def read(path: Path) -> Results:
    """Read a results file; an unfinished last line is ignored, any other line that is not a record is an error."""
    lines_of = records(path)
    header = next(lines_of)
    if not isinstance(header, HeaderRecord):
        raise TypeError("`records` gives the header first")
    results = Results(path, header)
    with uncollected():
        for record in lines_of:
            results.add(record)
    return results


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the garbage collector: a million records have no cycles, and scanning them takes 4 s."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def records(path: Path) -> Iterator[Record]:
    """Yield the records of a results file, the header first; an error names its line."""
    return (record for record, _ in records_and_lines(path))


def records_and_lines(path: Path) -> Iterator[tuple[Record, bytes]]:
    """Yield the records of a results file with their lines; lines of an old format are converted."""
    header = read_lines.first_object(path)
    old = header.get("format") == old_format.FORMAT
    if header.get("record") == "header" and header.get("format") != FORMAT and not old:
        raise ConfigurationError(
            f"{path} is of format {str(header.get('format'))[:20]}, this version reads format {FORMAT}; "
            "read it with the version of Gates that wrote it"
        )
    integrity: Integrity | None = None
    for number, line in read_lines.whole_lines(path):
        location = f"{path}:{number}"
        record = _record(old_format.translated(line) if old else line, path, number)
        if integrity is not None:
            integrity.see(record, location)
        elif isinstance(record, HeaderRecord):
            integrity = Integrity(record)
        else:
            raise ConfigurationError(f"{path}:1 must be a header, is a {record.record}")
        yield record, as_line(record).rstrip().encode() if old else line
    if integrity is None:
        raise ConfigurationError(f"{path} has no complete line; it must start with a header")


def _record(line: bytes, path: Path, number: int) -> Record:
    try:
        record = RECORD.validate_json(line)
    except ValidationError as error:
        raise no_record(path, number, problem_of(error.errors()[0])) from None
    if problem := read_lines.strict(line):
        raise no_record(path, number, problem)
    return record


LISTS = {  # the attribute of `Results` for each type of record
    VerdictRecord: "verdicts",
    SubjectRecord: "subjects",
    ModelRecord: "models",
    MutantRecord: "mutants",
    ResumeRecord: "resumes",
    SensitivityRecord: "sensitivities",
    CounterexampleRecord: "counterexamples",
    DiagnosisRecord: "diagnoses",
    SettledRecord: "settled",
    CalibrationRecord: "calibrations",
}
