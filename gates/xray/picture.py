"""Read a recording: what each update pushed, and what the numbers say about the script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gates.xray import recording as recordings
from gates.xray.reading import (
    between,
    clipping,
    endings,
    explained,
    left_out,
    margins,
    objective,
    optimizer,
    other_draws,
    outside,
    pairing,
    passes,
    penalty,
    prompts,
    regular,
    sampled_rows,
    sampling,
    second,
    shift,
    synced,
    texts,
    trains,
    truncated,
    within,
)
from gates.xray.reading.context import Context, context
from gates.xray.reading.reading import Reading
from gates.xray.recording import Recording
from gates.xray.step import Step, step
from gates.xray.verdict import Verdict, verdicts

QUESTIONS: tuple[Callable[[Context], list[Reading]], ...] = (
    objective.readings,
    prompts.readings,
    shift.readings,
    trains.readings,
    truncated.readings,
    regular.readings,
    sampled_rows.readings,
    other_draws.readings,
    endings.readings,
    texts.readings,
    within.readings,
    between.readings,
    passes.readings,
    margins.readings,
    pairing.readings,
    synced.readings,
    second.readings,
    penalty.readings,
    left_out.readings,
    explained.readings,
    optimizer.readings,
    outside.readings,
    sampling.readings,
)
OF_OTHERS = (
    explained.readings,
    optimizer.readings,
    outside.readings,
    sampling.readings,
)  # what coefficients do not say


@dataclass(frozen=True, slots=True)
class Picture:
    """An update with its coefficients and readings, and with verdicts where the script has noted its rewards."""

    step: Step
    readings: tuple[Reading, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def number(self) -> int:
        """The number of the update, from 1."""
        return self.step.update.number

    def of(self, name: str) -> Reading | None:
        """Return the answer to one question, None where it was not asked."""
        return next((reading for reading in self.readings if reading.name == name), None)


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
    limit = sampling.limit(recording.of("generate"))
    updates = recording.updates
    steps = [step(update, limit, updates[:index]) for index, update in enumerate(updates)]
    contexts: list[Context] = []
    for each in steps:
        contexts.append(context(recording, clipping.whole(each), contexts))
    return Xray(recording, tuple(map(_picture, steps, contexts)))


def _picture(measured: Step, each: Context) -> Picture:
    questions = OF_OTHERS if explained.much_is_left(each) else QUESTIONS
    readings: Sequence[Reading] = [reading for question in questions for reading in question(each)]
    return Picture(measured, tuple(readings), tuple(verdicts(each)))
