"""Read what one process recorded: its events and its updates, checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file

from gates.errors import ConfigurationError, unreadable
from gates.model import Array
from gates.xray.documents import FORMAT, PER_TOKEN, Event, UpdateDocument

EVENTS = "events.jsonl"
UPDATE = re.compile(r"update-(\d+)\.(json|safetensors)")


@dataclass(frozen=True, slots=True)
class Part:
    """An update as one process saw it."""

    file: Path
    document: UpdateDocument
    arrays: Mapping[str, Array]

    @property
    def tokens(self) -> int:
        """The number of columns that are the log-prob of a token."""
        return sum(count for kind, count in self.document.kinds if kind in PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Process:
    """What one process recorded.

    Attributes:
        folder: of the process.
        events: in their order.
        updates: by number.
        cut: a sentence for each file that is not whole.
    """

    folder: Path
    events: tuple[Event, ...]
    updates: Mapping[int, Part]
    cut: tuple[str, ...]

    def of(self, name: str) -> list[Event]:
        """Return the events of one kind."""
        return [event for event in self.events if event.event == name]


def load(folder: Path) -> Process:
    """Read the folder of one process.

    Raises:
        ConfigurationError: a file contradicts the format; the message names file and field.
    """
    events, cut = _events(folder / EVENTS)
    updates = {}
    for number in _numbers(folder):
        part = _part(folder, number)
        if isinstance(part, str):
            cut.append(part)
        else:
            updates[number] = part
    return Process(folder, tuple(events), updates, tuple(cut))


def _numbers(folder: Path) -> list[int]:
    names = (UPDATE.fullmatch(path.name) for path in folder.iterdir())
    return sorted({int(name[1]) for name in names if name})


def _events(path: Path) -> tuple[list[Event], list[str]]:
    """Return the events, and a sentence if a kill has cut the last line."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise unreadable(path, error) from None
    events: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(Event.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines):
                return events, [f"{path} is cut in its last line: the process was killed while it wrote"]
            raise ConfigurationError(f"{path}, line {number}: {_first(error)}; record the script again") from None
    return events, []


def _part(folder: Path, number: int) -> Part | str:
    """Return an update, or the sentence that names the file that is not whole."""
    file, arrays_file = folder / f"update-{number}.json", folder / f"update-{number}.safetensors"
    cut = f"is cut or missing: the process was killed while it wrote; update {number} is left out"
    try:
        text = file.read_text(encoding="utf-8")
        arrays = load_file(arrays_file)
    except FileNotFoundError as error:
        return f"{error.filename or arrays_file} {cut}"
    except (SafetensorError, UnicodeDecodeError):
        return f"{arrays_file} {cut}"
    except OSError as error:
        raise unreadable(file, error) from None
    try:
        document = UpdateDocument.model_validate_json(text)
    except ValidationError as error:
        if any(item["type"] == "json_invalid" for item in error.errors()):
            return f"{file} {cut}"
        raise ConfigurationError(f"{file}: {_first(error)}; docs/xray.md has the format") from None
    part = Part(file, document, {name: np.asarray(values) for name, values in arrays.items()})
    _check(part, number)
    if not all(np.isfinite(part.arrays[name]).all() for name in ("sketch", "gradient")):
        return f"{file}: update {number} is left out: its gradient is NaN or infinite"
    return part


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"field `{'.'.join(map(str, first['loc']))}`: {first['msg']}"


def _check(part: Part, number: int) -> None:
    """Refuse an update whose fields and arrays contradict each other."""
    for sentence in (*_fields(part, number), *_arrays(part), *_rows(part)):
        raise ConfigurationError(f"{part.file}: {sentence}; docs/xray.md has the format")


def _fields(part: Part, number: int) -> Iterator[str]:
    document = part.document
    if document.format != FORMAT:
        yield f"format {document.format}, must be {FORMAT}: record with the Gates that reads"
    if document.update != number:
        yield f"update {document.update}, must be {number} as the name of the file says"
    if document.bins & (document.bins - 1):
        yield f"{document.bins} bins, must be a power of 2"
    if len(document.keys) != part.tokens:
        yield f"{len(document.keys)} keys, must be {part.tokens}, one for each column of a token"


def _arrays(part: Part) -> Iterator[str]:
    document, arrays = part.document, part.arrays
    by_scorer = [f"scored.{index}" for index in range(len(document.scorers))]
    optional = [name for name in ("entropy", "start_log_probs") if name in arrays]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(["log_probs", *by_scorer, *optional], (part.tokens,))
    shapes |= {"sketch": (sum(count for _, count in document.kinds), document.bins), "gradient": (document.bins,)}
    for name, shape in shapes.items():
        if name not in arrays:
            yield f"no array `{name}`"
        elif arrays[name].shape != shape:
            yield f"array `{name}` has shape {list(arrays[name].shape)}, must be {list(shape)}"


def _rows(part: Part) -> Iterator[str]:
    for index, row in enumerate(part.document.rows):
        if not len(row.ids) == len(row.attended) == len(row.columns):
            yield f"row {index}: ids, attended and columns differ in length"
        elif row.columns and not -1 <= min(row.columns) <= max(row.columns) < part.tokens:
            yield f"row {index}: a column outside of -1 to {part.tokens - 1}"
        for name, values in (("labels", row.labels), ("pieces of text", row.text)):
            if values is not None and len(values) != len(row.ids):
                yield f"row {index}: {len(values)} {name} for {len(row.ids)} tokens"
