"""Describe the smallest failing inputs in words, the same for every report format."""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gates.results.escape import visible
from gates.results.records import CounterexampleRecord, VerdictRecord

UNTRIED = "only the first "  # with this `gates.shrink.collect` says why it did not try


def verdict_key(record: CounterexampleRecord | VerdictRecord) -> tuple[str, str, str, int]:
    """Return gate, subject, case and seed, which a counterexample and its verdict have in common."""
    return record.gate, record.subject, record.case, record.seed


def shrunk(record: CounterexampleRecord) -> bool:
    """Return whether the input was shrunk; otherwise `words` says why not, and the file, if any, holds it as drawn."""
    return record.file is not None and record.elements_after is not None


def by_gate(records: Iterable[CounterexampleRecord]) -> dict[tuple[str, str], list[CounterexampleRecord]]:
    """Return the shrunk inputs by subject and gate, in the order of their cases."""
    result: dict[tuple[str, str], list[CounterexampleRecord]] = defaultdict(list)
    for item in sorted(records, key=lambda item: (item.case, item.seed)):
        if shrunk(item):
            result[item.subject, item.gate].append(item)
    return result


def not_shrunk(records: Iterable[CounterexampleRecord]) -> list[tuple[str, list[CounterexampleRecord]]]:
    """Return each reason for not shrinking with its failures."""
    result: dict[str, list[CounterexampleRecord]] = defaultdict(list)
    for item in sorted(records, key=lambda item: (item.subject, item.gate, item.case, item.seed)):
        if not shrunk(item):
            result[item.words].append(item)
    return sorted(result.items())


def size(record: CounterexampleRecord) -> str:
    """Return the sizes before and after: `70 → 6 numbers`."""
    if record.elements_after is None:
        return ""
    unit = record.unit.removesuffix("s") if record.elements_after == 1 else record.unit
    cut = "" if record.finished else ", when the time ran out"
    return f"{record.elements_before} → {record.elements_after} {unit}{cut}"


def in_short(record: CounterexampleRecord) -> str:
    """Return sizes and words, or why the input is as it was drawn; nothing where only the first ones are shrunk."""
    if shrunk(record):
        return f"smallest input ({size(record)}): {record.words}"
    return "" if record.words.startswith(UNTRIED) else f"input as drawn, not shrunk: {record.words}"


def command(record: CounterexampleRecord, folder: Path | None = None) -> str:
    """Return the command that judges the input again, relative to the folder of the results, or to here if `folder` is it."""
    if record.file is None:
        return ""
    limit = None if record.time_limit is None else f"{record.time_limit:g}"
    subject = _outside(record, folder)
    options = {"--subject": subject, "--python": record.python, "--model": record.model, "--time-limit": limit}
    named = [word for option, value in options.items() if value for word in (option, value)]
    return shlex.join(["gates", "replay", str(folder / record.file) if folder else record.file, *named])


def _outside(record: CounterexampleRecord, folder: Path | None) -> str | None:
    """Return the file of the subject if it is not below the folder of the replay, which finds no other by itself."""
    if record.subject_file is None:
        return None
    file = record.subject_file
    if folder is not None:
        file = Path(os.path.relpath(folder.resolve() / file, Path.cwd().resolve())).as_posix()
    return file if file.startswith("../") else None


def sentence(record: CounterexampleRecord, folder: Path | None = None) -> str:
    """Return size, words and, if there is a file, the command."""
    if shrunk(record):
        words = f"smallest input that still fails ({record.case}, {size(record)}): {record.words}"
    else:
        words = f"input as drawn ({record.case}), not shrunk: {record.words}"
    return f"{words}; {command(record, folder)}" if record.file else words


@dataclass(frozen=True, slots=True)
class Entry:
    """One smallest input, or the reason why a failure has none."""

    number: int  # in the list, whose items are named by it
    run: int
    record: CounterexampleRecord
    place: str  # row and column of its table cell, `3/0`; empty: there is no such cell

    @property
    def size(self) -> str:
        """Return the sizes before and after."""
        return size(self.record)

    @property
    def command(self) -> str:
        """Return the command that judges it again; empty if there is no file."""
        return command(self.record)

    def as_row(self) -> list[str | int]:
        """Return the values that the script needs."""
        record = self.record
        words = (record.case, record.words, self.size, record.file or "", self.command)
        return [self.number, self.place, self.run, record.seed, *map(visible, words)]


def entries(runs: Sequence[Sequence[CounterexampleRecord]], places: Mapping[tuple[str, str], str]) -> list[Entry]:
    """Return the inputs of all runs, shrunk ones first, then by subject, gate and case."""
    ordered = [(number, record) for number, records in enumerate(runs) for record in records]
    ordered.sort(key=lambda entry: (not shrunk(entry[1]), entry[1].subject, entry[1].gate, entry[1].case, entry[0]))
    return [
        Entry(number, run, record, places.get((record.gate, record.subject), ""))
        for number, (run, record) in enumerate(ordered)
    ]
