"""Divide a plan into shards; its digest tells `gates merge` which shards belong together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gates.model import ConfigurationError
from gates.results.records import MOST_SHARDS, PlanRecord
from gates.run.plan import Names, PlannedCase


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` (from 1) of `count`."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """Parse `2/5`; None means the whole plan."""
        if text is None:
            return cls()
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        index, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= index <= count <= MOST_SHARDS:
            raise ConfigurationError(f"--shard {text}: must be INDEX/COUNT with 1 <= INDEX <= COUNT, such as 2/5")
        return cls(index, count)

    def take(self, cases: Sequence[PlannedCase]) -> list[PlannedCase]:
        """Return this shard's cases of the whole plan, in the plan's order.

        Each case, longest time limit first, goes to the shard with the smallest sum of limits. The result depends on names and
        limits alone, so every machine computes the same shards. The sums differ by at most the limit of one case.
        """
        loads = [0.0] * self.count
        names: set[Names] = set()
        for planned in sorted(cases, key=lambda planned: (-planned.case.limit_s, planned.names)):
            lightest = loads.index(min(loads))
            loads[lightest] += planned.case.limit_s
            if lightest == self.index - 1:
                names.add(planned.names)
        return [planned for planned in cases if planned.names in names]

    def record(self, cases: Sequence[PlannedCase]) -> PlanRecord:
        """Return the plan record of the header: the whole plan and this shard."""
        names = [planned.names for planned in cases]
        return PlanRecord(digest=digest(names), cells=len(names), shard=self.index, shards=self.count)


def digest(cases: Iterable[Names]) -> str:
    """Return the sha256 of the sorted names of a plan's cases."""
    hashed = hashlib.sha256()
    for names in sorted(cases):
        hashed.update(json.dumps(names, ensure_ascii=True).encode() + b"\n")
    return hashed.hexdigest()


def without(command: Iterable[str], *options: str) -> list[str]:
    """Return a command without the named options and their values."""
    kept: list[str] = []
    arguments = iter(command)
    for argument in arguments:
        if argument in options:
            next(arguments, None)
        elif argument.partition("=")[0] not in options:
            kept.append(argument)
    return kept
