"""The smallest failing input of an op as a table: its arguments, what came out, and what should have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gates.model import ConfigurationError
from gates.report import smallest
from gates.results.records import CounterexampleRecord
from gates.shrink.describe import shown_inputs
from gates.shrink.file import read

LARGEST = 1 << 20  # bytes of a file that is read for a table; a shrunk input has a few kilobytes
MEASURED = re.compile(
    r"(?:(?P<where>[^:;()]+): )?\(?(?:at (?P<at>\[[\d, ]*\]): )?got (?P<got>[^,;]+), want (?P<want>[^;)]+)"
)
INPUTS = re.compile(r"inputs(?: there)?: ")
NAMED = re.compile(r", (?=[A-Za-z_][\w.]* )")  # between two arguments in words


@dataclass(frozen=True, slots=True)
class SmallInput:
    """The table, and the command that judges the input again."""

    size: str  # `405 → 3 numbers`; empty: the input is as it was drawn
    rows: tuple[tuple[str, str], ...]  # arguments
    where: str  # at which `got` stands
    got: str
    want: str
    remarks: tuple[str, ...]
    command: str


def small_input(record: CounterexampleRecord, folder: Path) -> SmallInput | None:
    """Return the table of a counterexample, from its file where that lies beside the results, else from its words."""
    command = smallest.command(record)
    if not smallest.shrunk(record):
        why = smallest.in_short(record)
        return SmallInput("", (), "", "", "", (why,) if why else (), command) if command else None
    said, *others = record.words.split("; ")
    measured = MEASURED.search(record.words)
    words = next((part for part in others if INPUTS.match(part)), "")
    rows = _from_file(record, folder) or _from_words(INPUTS.sub("", words, count=1))
    remarks = tuple(part for part in others if not INPUTS.match(part) and "got " not in part)
    if measured is None:
        return SmallInput(smallest.size(record), rows, "", said, "", remarks, command)
    where = (measured["where"] or measured["at"] or "").strip()
    return SmallInput(smallest.size(record), rows, where, measured["got"], measured["want"], remarks, command)


def _from_file(record: CounterexampleRecord, folder: Path) -> tuple[tuple[str, str], ...]:
    """Return the arguments in the file; nothing if it is not below the folder, too large, or no counterexample."""
    name = PurePosixPath(record.file or "")
    if name.is_absolute() or ".." in name.parts:
        return ()
    file = folder / name
    try:
        if not file.is_file() or file.stat().st_size > LARGEST:
            return ()
        return tuple(shown_inputs(read(file)))
    except (ConfigurationError, OSError, ValueError):
        return ()


def _from_words(words: str) -> tuple[tuple[str, str], ...]:
    pairs = [part.partition(" ") for part in NAMED.split(words)] if words else []
    return tuple((name, value) for name, _, value in pairs if value)
