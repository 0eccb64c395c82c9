"""The smallest inputs that still fail, in words: one grammar for every form of a report."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gates.results.escape import one_line, visible
from gates.results.records import CounterexampleRecord, VerdictRecord


def verdict_key(found: CounterexampleRecord | VerdictRecord) -> tuple[str, str, str, int]:
    """Return gate, subject, case and seed, which a counterexample and its verdict have in common."""
    return found.gate, found.subject, found.case, found.seed


def shrunk(found: CounterexampleRecord) -> bool:
    """Return whether it was made small; else its words say why not, and its file, if any, holds the input as drawn."""
    return found.file is not None and found.elements_after is not None


def by_gate(found: Iterable[CounterexampleRecord]) -> dict[tuple[str, str], list[CounterexampleRecord]]:
    """Return those that were made small by subject and gate, in the order of their cases."""
    result: dict[tuple[str, str], list[CounterexampleRecord]] = defaultdict(list)
    for item in sorted(found, key=lambda item: (item.case, item.seed)):
        if shrunk(item):
            result[item.subject, item.gate].append(item)
    return result


def not_shrunk(found: Iterable[CounterexampleRecord]) -> list[tuple[str, list[CounterexampleRecord]]]:
    """Return why failures have no smaller input, each reason once with those that it holds for."""
    result: dict[str, list[CounterexampleRecord]] = defaultdict(list)
    for item in sorted(found, key=lambda item: (item.subject, item.gate, item.case, item.seed)):
        if not shrunk(item):
            result[item.words].append(item)
    return sorted(result.items())


def size(found: CounterexampleRecord) -> str:
    """Return how much smaller it became: `70 → 6 numbers`."""
    if found.elements_after is None:
        return ""
    unit = found.unit.removesuffix("s") if found.elements_after == 1 else found.unit
    cut = "" if found.finished else ", when the time was over"
    return f"{found.elements_before} → {found.elements_after} {unit}{cut}"


def command(found: CounterexampleRecord, folder: Path | None = None) -> str:
    """Return what judges it again, from the folder of the results or, where that is given, from here; else nothing."""
    if found.file is None:
        return ""
    options = {"--python": found.python, "--model": found.model}
    named = [word for option, value in options.items() if value for word in (option, value)]
    return shlex.join(["gates", "replay", str(folder / found.file) if folder else found.file, *named])


def sentence(found: CounterexampleRecord, folder: Path | None = None) -> str:
    """Return size, words and command of one that has a file."""
    if shrunk(found):
        words = f"smallest input that still fails ({found.case}, {size(found)}): {found.words}"
    else:
        words = f"input as drawn ({found.case}), not made smaller: {found.words}"
    return f"{words}; {command(found, folder)}" if found.file else words


def lines(found: Iterable[CounterexampleRecord], folder: Path) -> list[str]:
    """Return each in two lines of text, words and command, and once why others have none."""
    found = list(found)
    said = []
    for items in by_gate(found).values():
        for item in items:
            where = f"{item.subject} · {item.gate} · {item.case} ({size(item)})"
            said.append(one_line(f"smallest input: {where}: {item.words}"))
            said.append(one_line(f"  {command(item, folder)}"))
    for reason, items in not_shrunk(found):
        said.append(one_line(f"not minimised: {reason} ({len(items)} {'failure' if len(items) == 1 else 'failures'})"))
    return said


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
        return size(self.found)

    @property
    def command(self) -> str:
        """Return what judges it again, from the folder of the results; nothing where there is no file."""
        return command(self.found)

    def as_row(self) -> list[str | int]:
        """Return what the script needs of it."""
        found = self.found
        words = (found.case, found.words, self.size, found.file or "", self.command)
        return [self.number, self.place, self.run, found.seed, *map(visible, words)]


def entries(runs: Sequence[Sequence[CounterexampleRecord]], places: Mapping[tuple[str, str], str]) -> list[Entry]:
    """Return those of all runs, those made small first, by subject, gate and case; `places` by gate and subject."""
    found = [(number, record) for number, records in enumerate(runs) for record in records]
    found.sort(key=lambda entry: (not shrunk(entry[1]), entry[1].subject, entry[1].gate, entry[1].case, entry[0]))
    return [
        Entry(number, run, record, places.get((record.gate, record.subject), ""))
        for number, (run, record) in enumerate(found)
    ]
