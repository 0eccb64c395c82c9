"""Recorded limits: the entries of calibrated.json and their lookup.

An entry belongs to a gate, a quantity, a case, a backend and a BLAS. Its limit is a multiple of the noise floor, the
largest value of a correct subject over all seeds. If that multiple is nearer to the smallest effect of a mutant than to
the noise, the limit is the geometric mean of the two instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from gates.model import ConfigurationError
from gates.results.atomic_write import write_whole

FILE = Path(__file__).with_name("calibrated.json")
CLEARANCE = 1.25  # the least ratio of limit to noise, and of mutant to limit, that separates them


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subject computes: the backend and its BLAS."""

    backend: str
    blas: str

    @classmethod
    def of(cls, versions: Mapping[str, str]) -> Place:
        """Read it from the versions that a worker reports: MLX's device, and the preloaded BLAS."""
        if "mlx" in versions:
            device = "gpu" if "gpu" in versions.get("device", "") else "cpu"
            preloaded = versions.get("preloaded", "").lower()
            return cls(f"mlx-{device}", "openblas" if "openblas" in preloaded else "own")
        return cls("rlkernels" if "rlkernels" in versions else "numpy", "own")

    def __str__(self) -> str:
        return f"{self.backend} with {self.blas} BLAS"


NOWHERE = Place("unknown", "unknown")


class Measured(BaseModel):
    """A limit with the measurements that it was derived from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: float
    noise_floor: float | None  # the largest value of a correct subject
    noise_seed: int | None
    smallest_effect: float | None  # the least value above the noise floor of a caught mutant; null: no mutant
    mutant: str
    seeds: int
    commit: str | None
    date: str
    source: str  # the results files, or the earlier procedure


class Entry(Measured):
    """The limit of one quantity in one place, and its history."""

    gate: str
    quantity: str
    case: str
    backend: str
    blas: str
    history: list[Measured]

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Gate, quantity, case, backend and BLAS."""
        return self.gate, self.quantity, self.case, self.backend, self.blas

    def sentence(self) -> str:
        """Return the measurements behind the limit, as a sentence."""
        effect = "no mutant shows here" if self.smallest_effect is None else f"{self.mutant} {self.smallest_effect:.3g}"
        noise = "not recorded" if self.noise_floor is None else f"{self.noise_floor:.3g}"
        return f"noise floor {noise} over {self.seeds} seeds, smallest mutant effect: {effect} ({self.date})"

    def defect(self) -> str:
        """Return how the limit fails to separate noise from the smallest mutant, or ""."""
        where = f"{self.gate}, {self.quantity}, {self.case}, {self.backend} with {self.blas} BLAS"
        if self.noise_floor is not None and self.limit < CLEARANCE * self.noise_floor:
            return f"{where}: limit {self.limit:.3g} is nearer than {CLEARANCE} times to noise {self.noise_floor:.3g}"
        if self.smallest_effect is None:
            return f"{where}: no recorded proof has a mutant beyond the noise, so nobody knows what {self.limit:.3g} catches"
        if self.smallest_effect < CLEARANCE * self.limit:
            return (
                f"{where}: {self.mutant} gives {self.smallest_effect:.3g}, nearer than {CLEARANCE} times to the limit "
                f"{self.limit:.3g}"
            )
        return ""


class Limits(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = 1
    limits: list[Entry] = []

    def text(self) -> str:
        """Return the file's text, with sorted entries."""
        ordered = Limits(limits=sorted(self.limits, key=lambda entry: entry.key))
        return ordered.model_dump_json(indent=2) + "\n"

    def defects(self, gates: Iterable[str]) -> list[str]:
        """Return a sentence for each defect in the limits of these gates."""
        ids = set(gates)
        return [defect for entry in self.limits if entry.gate in ids and (defect := entry.defect())]


def load(path: Path | None = None) -> Limits:
    """Read the file; without one, no limits are recorded."""
    path = path or FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Limits()
    try:
        return Limits.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(
            f"{path} is no file of calibrated limits: {first['msg']} ({field}); `git checkout` it, or "
            "`gates calibrate --write-limits` after deleting it"
        ) from None


def write(limits: Limits) -> None:
    """Replace the file in one step."""
    write_whole(FILE, limits.text())
    _table.cache_clear()


@cache
def _table(path: Path) -> dict[tuple[str, str, str, str, str], Entry]:
    return {entry.key: entry for entry in load(path).limits}


def find(gate: str, quantity: str, case: str, place: Place) -> Entry | None:
    """Return the entry of a quantity in a place, if it is recorded."""
    return _table(FILE).get((gate, quantity, case, place.backend, place.blas))


def find_elsewhere(gate: str, quantity: str, case: str) -> Entry | None:
    """Return the entry with the largest limit over all places."""
    entries = [entry for key, entry in _table(FILE).items() if key[:3] == (gate, quantity, case)]
    return max(entries, key=lambda entry: entry.limit, default=None)


def limit_of(noise: float, effect: float | None, times: float) -> float:
    """Return the limit between the noise floor and the smallest mutant effect, rounded up to three digits."""
    limit = times * noise if effect is None else min(times * noise, math.sqrt(noise * effect))
    if limit == 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(limit)) - 2)
    return float(f"{math.ceil(limit / unit) * unit:.6g}")


def renew(new: Iterable[Entry]) -> Limits:
    """Replace entries, whose numbers become history, write the file, and return all limits."""
    table = {entry.key: entry for entry in load().limits}
    for entry in new:
        before = table.get(entry.key)
        history = [] if before is None else [*before.history, _measured(before)]
        table[entry.key] = entry.model_copy(update={"history": history})
    write(Limits(limits=list(table.values())))
    return load()


def _measured(entry: Entry) -> Measured:
    return Measured.model_validate(entry.model_dump(include=set(Measured.model_fields)))
