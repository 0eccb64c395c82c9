"""The smallest inputs that still fail, in words: one grammar for every form of a report."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gates.results.escape import one_line
from gates.results.records import CounterexampleRecord

Cell = tuple[str, str, str, int]
"""Gate, subject, case and seed."""


def cell(found: CounterexampleRecord) -> Cell:
    """Return which verdict it belongs to."""
    return found.gate, found.subject, found.case, found.seed


def made(found: CounterexampleRecord) -> bool:
    """Return whether it was made small; else its words say why not, and its file, if any, holds the input as drawn."""
    return found.file is not None and found.elements_after is not None


def by_gate(found: Iterable[CounterexampleRecord]) -> dict[tuple[str, str], list[CounterexampleRecord]]:
    """Return those that were made small by subject and gate, in the order of their cases."""
    result: dict[tuple[str, str], list[CounterexampleRecord]] = defaultdict(list)
    for item in sorted(found, key=lambda item: (item.case, item.seed)):
        if made(item):
            result[item.subject, item.gate].append(item)
    return result


def not_made(found: Iterable[CounterexampleRecord]) -> list[tuple[str, list[CounterexampleRecord]]]:
    """Return why failures have no smaller input, each reason once with those that it holds for."""
    result: dict[str, list[CounterexampleRecord]] = defaultdict(list)
    for item in sorted(found, key=lambda item: (item.subject, item.gate, item.case, item.seed)):
        if not made(item):
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
    if made(found):
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
    for reason, items in not_made(found):
        said.append(one_line(f"not minimised: {reason} ({len(items)} {'failure' if len(items) == 1 else 'failures'})"))
    return said
