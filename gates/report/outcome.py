"""The outcome of a run in one sentence, for every verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gates.report.labels import DEPARTS, meaning, shown
from gates.report.statuses import COUNTED
from gates.results.calibration_records import seeds_of
from gates.results.jsonl import Results
from gates.results.records import HeaderRecord, SummaryRecord
from gates.run.calibration_summary import counts as counted

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
        counts = ((self.counts.get(status, 0), status) for status in COUNTED)
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


def of(run: Results, counts: Mapping[str, int] | None = None) -> Outcome:
    """Return the outcome of a run; without `counts` its verdicts are counted."""
    found: Counter[str] = Counter(shown(verdict) for verdict in run.judged) if counts is None else Counter(counts)
    refused: set[int] = set()
    seeds: set[int] = set()
    for line in run.calibrations:
        found.update(counted(line))
        seeds.update(*(seeds_of(text) for cases in line.seeds.values() for text in cases.values()))
        refused.update(item.seed for item in line.false_positives)
    caught = Counter(mutant.state == "caught" for mutant in run.mutants)
    return Outcome(run.header, run.summary, run.state, found, caught.total(), caught[True], len(refused), len(seeds))
