"""Read speed files, also of an interrupted run, and compare their rows with the machine's limits (roofline)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from gates.model import ConfigurationError
from gates.results.read_lines import first_object, whole_lines
from gates.results.speed_records import (
    SPEED_FORMAT,
    SPEED_LINE,
    ComparisonRecord,
    RooflineRecord,
    SpeedHeader,
    SpeedLine,
    SpeedRecord,
    SpeedSummary,
    TrainerRecord,
)

KIND = "speed-header"
#: Jobs up to this many bytes fit into one core's second-level cache and have the roofline of one thread.
ONE_THREAD = 1 << 20
LEVELS = (("l1", 48 << 10), ("l2", ONE_THREAD), ("l3", 32 << 20))


@dataclass(slots=True)
class SpeedResults:
    """The records of a speed file, by type."""

    path: Path
    header: SpeedHeader
    rooflines: list[RooflineRecord] = field(default_factory=list)
    rows: list[SpeedRecord] = field(default_factory=list)
    trainers: list[TrainerRecord] = field(default_factory=list)
    comparisons: list[ComparisonRecord] = field(default_factory=list)
    summary: SpeedSummary | None = None

    @property
    def state(self) -> str:
        """`complete`, or how far the run came: `incomplete: 12 of 40`."""
        if self.summary is not None:
            return "complete"
        done = len(self.rows) + len(self.trainers) + len(self.comparisons)
        return f"incomplete: {done} of {self.header.planned}"


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time of a row on this machine, and the limiting resource."""

    microseconds: float
    limited_by: str
    threads: int


def is_speed_file(path: Path) -> bool:
    """Return whether the first line is that of a speed file."""
    return first_object(path).get("record") == KIND


def read_speed(path: Path) -> SpeedResults:
    """Read a speed file; a torn last line is ignored.

    Raises:
        ConfigurationError: the file is of another format, or a line is no record of it; the message names the line.
    """
    first = first_object(path)
    if first.get("record") == KIND and first.get("format", SPEED_FORMAT) != SPEED_FORMAT:
        raise ConfigurationError(
            f"{path} is of format {str(first.get('format'))[:20]}, this version reads format {SPEED_FORMAT}; "
            "read it with the version of Gates that wrote it"
        )
    results: SpeedResults | None = None
    for number, line in whole_lines(path):
        try:
            record = SPEED_LINE.validate_json(line)
        except ValidationError as error:
            raise ConfigurationError(f"{path}:{number} is no speed record: {error.errors()[0]['msg']}") from None
        if results is None:
            if not isinstance(record, SpeedHeader):
                raise ConfigurationError(f"{path}:1 must be a speed-header, is a {record.record}")
            results = SpeedResults(path, record)
        else:
            _add(results, record, f"{path}:{number}")
    if results is None:
        raise ConfigurationError(f"{path} has no complete line; it must start with a speed-header")
    return results


def _add(results: SpeedResults, record: SpeedLine, location: str) -> None:
    match record:
        case RooflineRecord():
            results.rooflines.append(record)
        case SpeedRecord():
            results.rows.append(record)
        case TrainerRecord():
            results.trainers.append(record)
        case ComparisonRecord():
            results.comparisons.append(record)
        case SpeedSummary():
            results.summary = record
        case SpeedHeader():
            raise ConfigurationError(f"{location} is a second header; one file holds one run")


def bound(row: SpeedRecord, rooflines: list[RooflineRecord]) -> Bound | None:
    """Return the roofline of a row: the time to move its bytes or to do its operations, whichever is longer.

    Written bytes count at the rate of a copy, the others at the rate of reading. A job that fits into one core's second-level
    cache is compared with the rates of one thread, a larger one with those of all threads.
    """
    size = row.reads + row.writes
    if not size or not rooflines:
        return None
    level = next((name for name, most in LEVELS if size <= most), "memory")
    most_threads = max(b.threads for r in rooflines for b in r.bandwidth)
    threads = 1 if size <= ONE_THREAD else most_threads
    rates = [b for r in rooflines for b in r.bandwidth if b.level == level and b.threads == threads]
    peaks = [getattr(p, row.precision) for r in rooflines for p in r.peak if p.threads == threads]
    if not rates or not peaks:
        return None
    both = min(row.reads, row.writes)
    moving = 2 * both / max(b.copying for b in rates) + (size - 2 * both) / max(b.reading for b in rates)
    computing = row.flops / max(peaks)
    limited_by = level if moving >= computing else "arithmetic"
    return Bound(1e6 * max(moving, computing), limited_by, threads)
