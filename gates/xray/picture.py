"""Read a recording: what each update pushed, and what the numbers say about the script."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gates.xray import recording as recordings
from gates.xray.reading.reading import Reading
from gates.xray.recording import Recording
from gates.xray.step import Step, step


@dataclass(frozen=True, slots=True)
class Picture:
    """An update with its coefficients and readings."""

    step: Step
    readings: tuple[Reading, ...]

    @property
    def number(self) -> int:
        """The number of the update, from 1."""
        return self.step.update.number


@dataclass(frozen=True, slots=True)
class Xray:
    """What a recording shows.

    Attributes:
        recording: as loaded.
        updates: in their order; empty where none could be recorded, and then `recording.cannot` says why.
    """

    recording: Recording
    updates: tuple[Picture, ...]


def read(folder: Path) -> Xray:
    """Read a recording and say what it shows.

    Args:
        folder: with a folder for each process, or of one process.

    Raises:
        ConfigurationError: there is no recording, or its files contradict the format or each other.
    """
    recording = recordings.load(folder)
    return Xray(recording, tuple(Picture(step(update), ()) for update in recording.updates))
