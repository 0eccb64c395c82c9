"""What came out of a run, in one sentence for every kind of run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gates.report.labels import DEPARTS, meaning, shown
from gates.results.jsonl import Results
from gates.results.records import CalibrationRecord, HeaderRecord, MutantRecord, SummaryRecord, seeds_of
from gates.run.calibration_summary import counts as counted

STATUSES = ("fail", "error", DEPARTS, "waived", "pass", "skipped", "unsupported")
DOCUMENTED = "departs as documented"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers of a run that its sentence is made of."""

    header: HeaderRecord
    summary: SummaryRecord | None
    state: str
    counts: Mapping[str, int]  # of verdicts on subjects as they are, by what is shown of them
    mutants: int
    caught: int
    refused: int  # seeds with a false positive
    seeds: int  # of which anything was judged

    @property
    def good(self) -> bool:
        """Return whether the run came to its end and nothing is wrong."""
        return self.summary is not None and self.summary.exit_code == 0

    @property
    def meaning(self) -> str:
        """Return what the exit code says, or how far the run came."""
        return meaning(self.header.verb, self.summary.exit_code) if self.summary else self.state

    @property
    def words(self) -> str:
        """Return the numbers, and the exit code of a run that came to its end."""
        told = ((self.counts.get(s, 0), DOCUMENTED if s == DEPARTS else s) for s in STATUSES)
        words = ", ".join(f"{number} {status}" for number, status in told if number) or "no verdict"
        if self.header.verb == "prove":
            words = f"{self.caught} of {self.mutants} mutants caught; without them {words}"
        if self.header.verb == "calibrate":
            words = f"{self.refused} of {self.seeds} seeds with a false positive; {words}"
        return f"{words}; exit code {self.summary.exit_code}" if self.summary else words


def of(run: Results) -> Outcome:
    """Return the outcome of a run that was read whole."""
    found = Counter(shown(verdict) for verdict in run.judged)
    return made(run.header, run.summary, run.state, found, run.mutants, run.calibrations)


def made(
    header: HeaderRecord,
    summary: SummaryRecord | None,
    state: str,
    counts: Mapping[str, int],
    mutants: Iterable[MutantRecord],
    calibrations: Iterable[CalibrationRecord],
) -> Outcome:
    """Return an outcome from counted verdicts and the records of a proof or a calibration."""
    found: Counter[str] = Counter(counts)
    refused: set[int] = set()
    seeds: set[int] = set()
    for line in calibrations:
        found.update(counted(line))
        seeds.update(*(seeds_of(text) for cases in line.seeds.values() for text in cases.values()))
        refused.update(item.seed for item in line.false_positives)
    caught = Counter(mutant.state == "caught" for mutant in mutants)
    return Outcome(header, summary, state, found, caught.total(), caught[True], len(refused), len(seeds))
