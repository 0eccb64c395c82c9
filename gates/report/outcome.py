"""The outcome of a run in one sentence, for every verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gates.report.labels import DEPARTS, meaning, shown
from gates.results.jsonl import Results
from gates.results.records import CalibrationRecord, HeaderRecord, MutantRecord, SummaryRecord, seeds_of
from gates.run.calibration_summary import counts as counted

STATUSES = (
    "wrong",
    "fragile",
    "imprecise",
    "timeout",
    "error",
    DEPARTS,
    "waived",
    "correct",
    "skipped",
    "unsupported",
    "not asked",
)
DOCUMENTED = "documented deviation"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers in the sentence of a run."""

    header: HeaderRecord
    summary: SummaryRecord | None
    state: str
    counts: Mapping[str, int]  # of verdicts without a mutant, by shown status
    mutants: int
    caught: int
    refused: int  # seeds with a false positive
    seeds: int  # of which anything was judged

    @property
    def good(self) -> bool:
        """Return whether the run is complete and nothing failed."""
        return self.summary is not None and self.summary.exit_code == 0

    @property
    def meaning(self) -> str:
        """Return the meaning of the exit code, or how far the run came."""
        return meaning(self.header.verb, self.summary.exit_code) if self.summary else self.state

    @property
    def words(self) -> str:
        """Return the numbers, and the exit code of a complete run."""
        counts = ((self.counts.get(status, 0), status) for status in STATUSES)
        words = ", ".join(_counted(number, status) for number, status in counts if number) or "no verdict"
        if self.header.verb == "prove":
            words = f"{self.caught} of {self.mutants} mutants caught; without them {words}"
        if self.header.verb == "calibrate":
            words = f"{self.refused} of {self.seeds} seeds with a false positive; {words}"
        return f"{words}; exit code {self.summary.exit_code}" if self.summary else words


def _counted(number: int, status: str) -> str:
    if status != DEPARTS:
        return f"{number} {status}"
    return f"{number} {DOCUMENTED}{'' if number == 1 else 's'}"


def of(run: Results) -> Outcome:
    """Return the outcome of a run."""
    counts = Counter(shown(verdict) for verdict in run.judged)
    return made(run.header, run.summary, run.state, counts, run.mutants, run.calibrations)


def made(
    header: HeaderRecord,
    summary: SummaryRecord | None,
    state: str,
    counts: Mapping[str, int],
    mutants: Iterable[MutantRecord],
    calibrations: Iterable[CalibrationRecord],
) -> Outcome:
    """Return the outcome of counted verdicts and of the records of a proof or a calibration."""
    total: Counter[str] = Counter(counts)
    refused: set[int] = set()
    seeds: set[int] = set()
    for line in calibrations:
        total.update(counted(line))
        seeds.update(*(seeds_of(text) for cases in line.seeds.values() for text in cases.values()))
        refused.update(item.seed for item in line.false_positives)
    caught = Counter(mutant.state == "caught" for mutant in mutants)
    return Outcome(header, summary, state, total, caught.total(), caught[True], len(refused), len(seeds))
