"""The records of a calibration: seeds as ranges, false positives, and the claims nearest to their limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gates.model import Status
from gates.results.record_types import Number, StrictRecord

MOST_SEEDS = 1_000_000  # seeds of one case; a calibration judges a thousand


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds as ranges: `0-9,12`."""
    ranges: list[tuple[int, int]] = []
    for seed in sorted(seeds):
        first = ranges.pop()[0] if ranges and ranges[-1][1] == seed - 1 else seed
        ranges.append((first, seed))
    return ",".join(str(last) if first == last else f"{first}-{last}" for first, last in ranges)


def seeds_of(text: str) -> set[int]:
    """Return the seeds of ranges.

    Raises:
        ValueError: a range is reversed, or the text has more than `MOST_SEEDS` seeds.
    """
    result: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        if not seeds or len(seeds) + len(result) > MOST_SEEDS:
            raise ValueError(f"{part} must be one to {MOST_SEEDS} seeds in order, such as 0-99")
        result.update(seeds)
    return result


def _as_written(text: str) -> str:
    seeds_of(text)
    return text


Ranges = Annotated[str, Field(pattern=r"^\d+(-\d+)?(,\d+(-\d+)?)*$"), AfterValidator(_as_written)]
CaseSeeds = dict[str, Ranges]


class FalsePositiveRecord(StrictRecord):
    """A seed at which a gate did not pass a correct subject."""

    case: str
    seed: int
    status: Status
    cause: str
    reason: str


class NearestRecord(StrictRecord):
    """The claim of one quantity that came nearest to its limit."""

    quantity: str
    case: str
    seed: int
    share: Number | None = Field(description="observed / limit; null where no limit is recorded yet")
    observed: Number
    limit: Number


class CalibrationRecord(StrictRecord):
    """One gate × subject over seeds: a block of them in the file of a run, all of them in the calibration summary."""

    record: Literal["calibration"] = "calibration"
    gate: str
    subject: str
    backend: str
    blas: str
    cpu: str
    full: bool
    commits: list[str]
    seeds: dict[Literal["judged", "unsupported", "skipped", "uncalibrated"], CaseSeeds] = Field(
        description="of each case; uncalibrated: no limit is recorded; what was judged and is no false positive passed"
    )
    retried: CaseSeeds = Field(
        description="verdicts that ran out of time and were reached once more; the second counts"
    )
    false_positives: list[FalsePositiveRecord]
    nearest: list[NearestRecord] = Field(
        description="of each quantity the claim `observed <= limit`, with a limit above 0, that came nearest to it"
    )

    @property
    def verdicts(self) -> int:
        """Return how many verdicts the line stands for."""
        return sum(len(seeds_of(text)) for cases in self.seeds.values() for text in cases.values())
