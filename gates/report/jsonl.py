"""Results files: append-only JSONL, one write per line, readable up to wherever a run was killed."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from gates.model import ConfigurationError
from gates.report.records import (
    RECORD,
    HeaderRecord,
    ModelRecord,
    Record,
    SensitivityRecord,
    SubjectRecord,
    SummaryRecord,
    VerdictRecord,
)


class Writer:
    """Appends records to a new file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write results to {path}: {error.strerror}; choose a folder with --out"
            ) from None

    def write(self, record: Record) -> None:
        """Append one line in one write."""
        data = (json.dumps(record.model_dump(mode="json"), allow_nan=False, ensure_ascii=False) + "\n").encode()
        while data:  # a signal or a full disk may cut a write short; the torn line is then completed or ignored
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Put everything on disk and close the file."""
        os.fsync(self._fd)
        os.close(self._fd)


@dataclass(slots=True)
class Results:
    """What a results file says."""

    path: Path
    header: HeaderRecord
    subjects: list[SubjectRecord] = field(default_factory=list)
    models: list[ModelRecord] = field(default_factory=list)
    verdicts: list[VerdictRecord] = field(default_factory=list)
    sensitivities: list[SensitivityRecord] = field(default_factory=list)
    summary: SummaryRecord | None = None

    @property
    def judged(self) -> list[VerdictRecord]:
        """Return the verdicts on subjects as they are, without those on mutants."""
        return [verdict for verdict in self.verdicts if verdict.mutant is None]

    @property
    def state(self) -> str:
        """Return `complete`, or how far the run came: `incomplete: 12 of 40`."""
        if self.summary is not None:
            return "complete"
        return f"incomplete: {len(self.verdicts)} of {self.header.planned}"


def file_name(verb: str, now: datetime | None = None) -> str:
    """Return a name that sorts by time, has no colon and never collides."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    return f"{verb}-{stamp}-{secrets.token_hex(4)}.jsonl"


def read(path: Path) -> Results:
    """Read a results file; a torn last line is ignored, anything else that is no record is an error."""
    lines = records(path)
    header = next(lines)
    assert isinstance(header, HeaderRecord)  # `records` has seen to it
    results = Results(path, header)
    for record in lines:
        _add(results, record)
    return results


def records(path: Path) -> Iterator[Record]:
    """Give the records of a results file one by one, the header first; mistakes are told with their line."""
    found = False
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):  # what follows the last newline was torn
                    found = True
                    yield _record(line, number, path)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    if not found:
        raise ConfigurationError(f"{path} has no complete line; it must start with a header")


def _record(line: bytes, number: int, path: Path) -> Record:
    try:
        record = RECORD.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{path}:{number} is no record of Gates: {first['msg']} ({place or 'line'})") from None
    if (number == 1) != isinstance(record, HeaderRecord):
        raise ConfigurationError(
            f"{path}:1 must be a header, is a {record.record}"
            if number == 1
            else f"{path}:{number} is a second header; one file holds one run"
        )
    return record


def _add(results: Results, record: Record) -> None:
    match record:
        case VerdictRecord():
            results.verdicts.append(record)
        case SubjectRecord():
            results.subjects.append(record)
        case ModelRecord():
            results.models.append(record)
        case SensitivityRecord():
            results.sensitivities.append(record)
        case SummaryRecord():
            results.summary = record
        case HeaderRecord():
            pass  # the first record, which `read` has taken
