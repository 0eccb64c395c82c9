"""Results files: append-only JSONL, one write per line, readable up to wherever a run was killed."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from gates.model import ConfigurationError
from gates.report.records import (
    RECORD,
    BlockRecord,
    HeaderRecord,
    ModelRecord,
    MutantRecord,
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
    mutants: list[MutantRecord] = field(default_factory=list)
    sensitivities: list[SensitivityRecord] = field(default_factory=list)
    blocks: list[BlockRecord] = field(default_factory=list)
    summary: SummaryRecord | None = None

    @property
    def state(self) -> str:
        """Return `complete`, or how far the run came: `incomplete: 12 of 40`."""
        if self.summary is not None:
            return "complete"
        judged = len(self.verdicts) + sum(block.seeds for block in self.blocks)
        return f"incomplete: {judged} of {self.header.planned}"


def file_name(verb: str, now: datetime | None = None) -> str:
    """Return a name that sorts by time, has no colon and never collides."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    return f"{verb}-{stamp}-{secrets.token_hex(4)}.jsonl"


def read(path: Path) -> Results:
    """Read a results file; a torn last line is ignored, anything else that is no record is an error."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    lines = data.split(b"\n")[:-1]  # what follows the last newline was torn
    results: Results | None = None
    for number, line in enumerate(lines, 1):
        try:
            record = RECORD.validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ConfigurationError(
                f"{path}:{number} is no record of Gates: {first['msg']} ({place or 'line'})"
            ) from None
        if results is None:
            if not isinstance(record, HeaderRecord):
                raise ConfigurationError(f"{path}:1 must be a header, is a {record.record}")
            results = Results(path, record)
        else:
            _add(results, record, f"{path}:{number}")
    if results is None:
        raise ConfigurationError(f"{path} has no complete line; it must start with a header")
    return results


def _add(results: Results, record: Record, place: str) -> None:
    match record:
        case VerdictRecord():
            results.verdicts.append(record)
        case SubjectRecord():
            results.subjects.append(record)
        case ModelRecord():
            results.models.append(record)
        case MutantRecord():
            results.mutants.append(record)
        case SensitivityRecord():
            results.sensitivities.append(record)
        case BlockRecord():
            results.blocks.append(record)
        case SummaryRecord():
            results.summary = record
        case HeaderRecord():
            raise ConfigurationError(f"{place} is a second header; one file holds one run")
