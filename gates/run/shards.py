"""One plan in several parts: which cells each part judges, and how a plan is named so that parts find together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gates.model import ConfigurationError
from gates.results.records import MOST_SHARDS, PlanRecord
from gates.run.runner import PlannedCase

Cell = tuple[str, str, str]  # gate, subject, case


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` (from 1) of `count`."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """Read `2/5`; None is the whole plan."""
        if text is None:
            return cls()
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        index, count = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= index <= count <= MOST_SHARDS:
            raise ConfigurationError(f"--shard {text}: must be INDEX/COUNT with 1 <= INDEX <= COUNT, such as 2/5")
        return cls(index, count)

    def take(self, jobs: Sequence[PlannedCase]) -> list[PlannedCase]:
        """Return this shard's cells of the whole plan, in the plan's order.

        Longest limit first, each to the shard with the least so far: a function of names and limits alone, so every
        machine finds the same parts, and no two shards' limits differ by more than the longest limit of one cell.
        """
        loads = [0.0] * self.count
        mine: set[Cell] = set()
        for job in sorted(jobs, key=lambda job: (-job.case.limit_s, cell(job))):
            lightest = loads.index(min(loads))
            loads[lightest] += job.case.limit_s
            if lightest == self.index - 1:
                mine.add(cell(job))
        return [job for job in jobs if cell(job) in mine]

    def record(self, jobs: Sequence[PlannedCase]) -> PlanRecord:
        """Return how a header names the whole plan and this part of it."""
        cells = [cell(job) for job in jobs]
        return PlanRecord(digest=digest(cells), cells=len(cells), shard=self.index, shards=self.count)


def cell(job: PlannedCase) -> Cell:
    """Return the names of a cell."""
    return job.gate.id, job.subject.name, job.case.name


def digest(cells: Iterable[Cell]) -> str:
    """Return the sha256 of the cells' names in order: two plans have the same one if they are the same cells."""
    hashed = hashlib.sha256()
    for names in sorted(cells):
        hashed.update(json.dumps(names, ensure_ascii=True).encode() + b"\n")
    return hashed.hexdigest()


def without(command: Iterable[str], *options: str) -> list[str]:
    """Return a command without some of its options and their values."""
    kept: list[str] = []
    words = iter(command)
    for word in words:
        if word in options:
            next(words, None)
        elif word.partition("=")[0] not in options:
            kept.append(word)
    return kept
