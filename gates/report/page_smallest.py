"""The smallest inputs of the HTML page: each beside its verdict, and all in one list with a way to their cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gates.report import smallest
from gates.results.escape import visible
from gates.results.records import CounterexampleRecord


@dataclass(frozen=True, slots=True)
class Entry:
    """One smallest input, or why a failure has none."""

    number: int  # of all of them, in order; the list's items are named by it
    run: int
    found: CounterexampleRecord
    place: str  # row and column of its cell, `3/0`; empty: the page has no such cell

    @property
    def size(self) -> str:
        """Return how much smaller it became."""
        return smallest.size(self.found)

    @property
    def command(self) -> str:
        """Return what judges it again, from the folder of the results; nothing where there is no file."""
        return smallest.command(self.found)

    def as_row(self) -> list[str | int]:
        """Return what the script needs of it."""
        found = self.found
        words = (found.case, found.words, self.size, found.file or "", self.command)
        return [self.number, self.place, self.run, found.seed, *map(visible, words)]


def entries(runs: Sequence[Sequence[CounterexampleRecord]], places: Mapping[tuple[str, str], str]) -> list[Entry]:
    """Return those of all runs, those made small first, by subject, gate and case; `places` by gate and subject."""
    found = [(number, record) for number, records in enumerate(runs) for record in records]
    found.sort(
        key=lambda entry: (not smallest.made(entry[1]), entry[1].subject, entry[1].gate, entry[1].case, entry[0])
    )
    return [
        Entry(number, run, record, places.get((record.gate, record.subject), ""))
        for number, (run, record) in enumerate(found)
    ]
