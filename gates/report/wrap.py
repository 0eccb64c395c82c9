"""Wrap words to the columns of a terminal: no word is cut, so that a path can be copied."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

from rich.cells import cell_len

NARROW = 36  # columns that text beside a name needs; with fewer it stands below the name
BELOW = 4  # columns before text below a name
PIPED = 120  # columns where there is no terminal and COLUMNS is not set


def columns() -> int:
    """Return the columns of a line: those of the terminal, else of COLUMNS, else 120."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    setting = os.environ.get("COLUMNS", "")
    return int(setting) if setting.isascii() and setting.isdigit() and int(setting) else PIPED


def beside(column: int, width: int, most: int) -> tuple[int, int]:
    """Return the column where the text of a row begins, and its lines at most: below the name on a narrow screen."""
    return (column, most) if width - column >= NARROW else (BELOW, 2 * most)


def rows() -> int | None:
    """Return the lines of the terminal, or None where there is none."""
    return shutil.get_terminal_size().lines if sys.stdout.isatty() else None


def wrapped(pieces: Iterable[str], width: int, between: str = " ", most: int | None = None) -> list[str]:
    """Return pieces, which stay whole, joined to lines of at most `width` columns.

    A wider piece has its own line. A line that is broken after a piece ends with `between`. With more than `most` lines, the
    last one ends in an ellipsis.
    """
    lines: list[str] = []
    for piece in pieces:
        if lines and cell_len(f"{lines[-1]}{between}{piece}{between.rstrip()}") <= width:
            lines[-1] += between + piece
        else:
            if lines:
                lines[-1] += between.rstrip()
            lines.append(piece)
    lines = [f"\\{line}" if line.startswith("::") else line for line in lines]  # a log of GitHub would obey it
    if most is None or len(lines) <= most:
        return lines
    last = lines[most - 1]
    while " " in last and cell_len(last) > width - 2:
        last = last.rpartition(" ")[0]
    return [*lines[: most - 1], f"{last} …"]


def sentence(text: str, width: int, most: int | None = None) -> list[str]:
    """Return a sentence as lines, broken between words."""
    return wrapped(text.split(), width, most=most)
