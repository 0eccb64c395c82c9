"""The lines of a speed file (`results/bench/*.jsonl`): what was timed against whom, and what the machine can do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from gates.results.records import EvidenceRecord, Machine, Number, StrictRecord

SPEED_FORMAT = 1
Outcome = Literal["timed", "unsupported", "wrong", "baseline wrong", "baseline absent", "error"]


class SpeedHeader(StrictRecord):
    """The first line: who timed what, where, with how many threads."""

    record: Literal["speed-header"] = "speed-header"
    format: int = SPEED_FORMAT
    command: list[str]
    started: str
    commit: str | None
    dirty: bool | None = Field(description="tracked files differ from the commit")
    machine: Machine
    python: str
    build: dict[str, Any] = Field(description="rlkernels.build_info()")
    isa: str = Field(description="what RLKERNELS_ISA forced, or empty: the best of the machine")
    versions: dict[str, str]
    threads: dict[str, str] = Field(description="how many threads each library was given, and by what")
    quick: bool = Field(description="a smoke test: too few samples to conclude anything")
    busy_percent: Number = Field(description="share of the processors that others used in the second before the rows")
    planned: int


class Bandwidth(StrictRecord):
    """Bytes per second, each counted once when read and once when written."""

    threads: int
    level: str
    bytes: int
    reading: Number
    copying: Number


class Peak(StrictRecord):
    """Floating-point operations per second; a fused multiply-add is two."""

    threads: int
    float32: Number
    float64: Number


class RooflineRecord(StrictRecord):
    """What the machine can do at best, measured in this run by benches/versus/roofline.rs."""

    record: Literal["roofline"] = "roofline"
    when: Literal["before", "after"]
    bandwidth: list[Bandwidth]
    peak: list[Peak]


class Times(StrictRecord):
    """What one side took, in microseconds; one sample is the mean of `calls` calls."""

    statement: str
    calls: int
    median_us: Number
    least_us: Number
    quartile_range_us: Number


class Interval(StrictRecord):
    """A ratio of medians with its 95% interval, by bootstrap over rounds."""

    value: Number
    low: Number
    high: Number


class SpeedRecord(StrictRecord):
    """One op at one shape against one baseline, or alone with a limit on its time."""

    record: Literal["speed"] = "speed"
    op: str
    shape: str
    baseline: str
    outcome: Outcome
    reason: str = ""
    note: str = Field(default="", description="what both sides compute, and where they differ")
    evidence: list[EvidenceRecord] = Field(default=[], description="of both sides, before timing")
    rounds: int = 0
    ours: Times | None = None
    theirs: Times | None = None
    ratio: Interval | None = Field(default=None, description="median of the baseline over ours")
    control: Interval | None = Field(default=None, description="ours over ours in the same rounds: 1 but for noise")
    goal: float | None = Field(
        default=None, description="the least ratio wanted; without a baseline the most microseconds"
    )
    goal_met: Literal["met", "missed", "undecided"] | None = None
    reads: int = Field(default=0, description="bytes that any implementation must read")
    writes: int = Field(default=0, description="bytes that any implementation must write")
    flops: float = 0.0
    precision: Literal["float32", "float64"] = "float32"
    roofline_goal: float | None = None


class SpeedSummary(StrictRecord):
    """The last line. A file without it is incomplete."""

    record: Literal["speed-summary"] = "speed-summary"
    counts: dict[Outcome, int]
    goals: dict[Literal["met", "missed", "undecided"], int]
    seconds: Number


SpeedLine = Annotated[
    SpeedHeader | RooflineRecord | SpeedRecord | SpeedSummary,
    Field(discriminator="record"),
]
SPEED_LINE: TypeAdapter[SpeedLine] = TypeAdapter(SpeedLine)


def speed_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a Gates speed file",
        **SPEED_LINE.json_schema(mode="serialization"),
    }
