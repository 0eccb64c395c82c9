"""Judge again and again: a round, then a wait until a file in the folder of a subject changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import typer

from gates.config import finding
from gates.errors import ExitCode
from gates.model import ConfigurationError

PAUSE_S = 0.3  # between two looks at the files
SETTINGS = ("pyproject.toml", "gates.toml")

Snapshot = dict[Path, tuple[int, int]]


class Round(Protocol):
    """A run that is about to begin."""

    @property
    def folders(self) -> list[Path]:
        """The folders of its subjects."""

    @property
    def results(self) -> Path:
        """Its results file."""


R = TypeVar("R", bound=Round)


def rounds(prepare: Callable[[], R], conduct: Callable[[R], int]) -> int:
    """Judge, wait for a change, and judge again until Ctrl-C; only the results file of the latest round is kept.

    A mistake in a file or a setting is printed, and the next change tries again; one in the first round ends the command
    if it names no file that could change.
    """
    kept: Path | None = None
    files: Snapshot = {}
    while True:
        try:
            run = prepare()
            files = snapshot(run.folders)
            if conduct(run) == ExitCode.INTERRUPTED:
                return ExitCode.INTERRUPTED
            if kept is not None:
                kept.unlink(missing_ok=True)
            kept = run.results
        except ConfigurationError as error:
            if not files:
                raise
            typer.echo(f"gates: {error}", err=True)
        typer.echo("waiting for a change (Ctrl-C ends it)", err=True)
        changed = _wait(run.folders, files)
        typer.echo(f"\n{time.strftime('%H:%M:%S')} {changed.name} changed", err=True)


def snapshot(folders: Iterable[Path]) -> Snapshot:
    """Return time of change and size of each Python file and each file of settings in these folders."""
    held: Snapshot = {}
    for path in _watched(folders):
        try:
            status = path.stat()
        except OSError:  # gone since it was listed
            continue
        held[path] = status.st_mtime_ns, status.st_size
    return held


def _watched(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from finding.files(folder, ".py")
        yield from (folder / name for name in SETTINGS)


def _wait(folders: Iterable[Path], before: Snapshot) -> Path:
    """Return the first file that differs from a snapshot, as soon as one does."""
    while True:
        now = snapshot(folders)
        for path in sorted({*now, *before}):
            if now.get(path) != before.get(path):
                return path
        time.sleep(PAUSE_S)
