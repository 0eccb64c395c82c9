"""The lines of a speed file (`results/bench/*.jsonl`): what was timed against whom, and what the machine can do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from gates.results.record_types import Number, StrictRecord
from gates.results.records import EvidenceRecord, Machine

SPEED_FORMAT = 2
Kind = Literal["kernels", "trainers", "comparison"]
Outcome = Literal["timed", "unsupported", "wrong", "peer wrong", "absent", "rejected", "error"]
Verdict = Literal["slower", "faster", "same", "undecided"]


class SpeedHeader(StrictRecord):
    """The first line: who timed what, where, with how many threads."""

    record: Literal["speed-header"] = "speed-header"
    format: int = SPEED_FORMAT
    kind: Kind
    command: list[str]
    started: str
    commit: str | None
    dirty: bool | None = Field(description="tracked files differ from the commit")
    machine: Machine
    python: str
    build: dict[str, Any] = Field(description="rlkernels.build_info()")
    threads: int = Field(description="how many threads each library was given")
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
    """What the machine can do at best, measured in this run by benches/roofline.rs."""

    record: Literal["roofline"] = "roofline"
    when: Literal["before", "after"]
    bandwidth: list[Bandwidth]
    peak: list[Peak]


class Times(StrictRecord):
    """What one side took, in microseconds; one sample is the mean of `calls` calls."""

    statement: str
    calls: int
    median_us: Number
    low_us: Number = Field(description="10% quantile of the samples: contention only adds")


class Interval(StrictRecord):
    """An estimate with its 95% interval, by bootstrap over pairs."""

    value: Number
    low: Number
    high: Number


class SpeedRecord(StrictRecord):
    """One op at one shape: rlkernels against a peer, both in the peer's interpreter."""

    record: Literal["speed"] = "speed"
    op: str
    variant: str = Field(default="", description="conventions that matter for the speed, such as `top-p 0.95`")
    shape: str
    peer: str = Field(
        description="a name of `gates peers list`, or NumPy, torch or MLX for the plain formula; @ a variant"
    )
    outcome: Outcome
    reason: str = ""
    note: str = Field(default="", description="what both sides compute, and where they differ")
    conformance: str = Field(default="", description="grade of the peer's op in results/conformance; empty: not judged")
    versions: dict[str, str] = Field(default={}, description="of the peer's interpreter")
    threads: int = 0
    isa: str = Field(default="", description="the instruction set of rlkernels")
    evidence: list[EvidenceRecord] = Field(default=[], description="of both sides, before timing")
    pairs: int = Field(default=0, description="ABBA pairs, over all processes")
    processes: int = 0
    ours: Times | None = None
    theirs: Times | None = None
    ratio: Interval | None = Field(default=None, description="the peer's time over ours: median of the paired ratios")
    control: Interval | None = Field(default=None, description="ours over ours in the same pairs: 1 but for noise")
    busy_percent: Number | None = Field(
        default=None, description="share of the processors that others used while the row was timed"
    )
    reads: int = Field(default=0, description="bytes that any implementation must read")
    writes: int = Field(default=0, description="bytes that any implementation must write")
    flops: float = 0.0
    precision: Literal["float32", "float64"] = "float32"


class TrainerRecord(StrictRecord):
    """One trainer on one workload, through its own public entry point in its own environment."""

    record: Literal["trainer"] = "trainer"
    target: str = Field(description="reference, or a name of `gates peers list`")
    workload: str
    model: str = Field(description="tiny, ten, qwen3-0.6b, each with its bits")
    outcome: Outcome
    reason: str = ""
    note: str = ""
    entry: str = Field(default="", description="the public entry point that was called")
    comparison: Literal["same semantics", "package speed only", "generation only", "not judged yet", ""] = ""
    conformance: str = Field(default="", description="grade of its loss in results/conformance; empty: not judged")
    versions: dict[str, str] = Field(default={}, description="of its interpreter")
    settings: dict[str, Any] = Field(default={}, description="settings that really held, as read back from the trainer")
    passes: int = Field(default=0, description="processes, interleaved with those of other targets")
    steps: int = Field(default=0, description="timed steps of all passes")
    warmup_s: Number | None = Field(default=None, description="first steps of a pass, with compilation; in no average")
    rollout_tokens_per_s: Interval | None = Field(default=None, description="completion tokens only")
    gradient_s: Interval | None = Field(default=None, description="of a step, without generation")
    step_s: Interval | None = None
    samples_per_s: Interval | None = Field(default=None, description="completions")
    iterations_per_s: Interval | None = None
    peak_memory_bytes: int | None = Field(default=None, description="by the framework; empty where it counts none")
    peak_rss_bytes: int | None = Field(default=None, description="of the process, without the interpreter's start")
    prompt_tokens: int = Field(default=0, description="of a step, each prompt counted once for each completion")
    generated_tokens: int = Field(default=0, description="of a step")
    forward_tokens: int = Field(default=0, description="of a step: through a forward pass outside generation")
    ratio: Interval | None = Field(
        default=None,
        description="its time for each completion token (of a step, or of generation alone) over the reference's",
    )
    control: Interval | None = Field(default=None, description="the reference over itself: 1 but for noise")


class ComparisonRecord(StrictRecord):
    """One benchmark at two revisions, by pairs of processes."""

    record: Literal["comparison"] = "comparison"
    benchmark: str
    left: str = Field(description="revision A")
    right: str = Field(description="revision B")
    outcome: Outcome
    reason: str = ""
    pairs: int = 0
    left_us: Number | None = None
    right_us: Number | None = None
    ratio: Interval | None = Field(default=None, description="time of B over that of A; above 1 is slower")
    control: Interval | None = Field(default=None, description="A over A and B over B in the same pairs")
    floor: Number = Field(default=0.0, description="effects below it are `same`, however narrow the interval")
    verdict: Verdict | None = None
    left_instructions: Number | None = Field(default=None, description="of a call, counted by valgrind")
    right_instructions: Number | None = None


class SpeedSummary(StrictRecord):
    """The last line. A file without it is incomplete."""

    record: Literal["speed-summary"] = "speed-summary"
    counts: dict[Outcome, int]
    absent: list[str] = Field(default=[], description="peers without an environment here")
    seconds: Number


SpeedLine = Annotated[
    SpeedHeader | RooflineRecord | SpeedRecord | TrainerRecord | ComparisonRecord | SpeedSummary,
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
