"""What runs on a node of the cluster: one process judges unit after unit, and keeps its subjects' workers warm."""

from __future__ import annotations

import atexit

from gates.model import ConfigurationError
from gates.registry import load
from gates.run.engines.units import Unit, judged_text
from gates.run.engines.workers import Bench
from gates.run.runner import Options

_BENCHES: list[Bench] = []  # of this process: the one of the last options, for a mutant wants a worker of its own


def judge(text: str) -> dict[str, str]:
    """Judge one unit: JSON in, JSON out, or why this node cannot."""
    unit = Unit.read(text)
    try:
        job = unit.find(load())
    except ConfigurationError as error:
        return {"refused": str(error)}
    return {"judged": judged_text(_bench(unit.options).judge(job))}


def _bench(options: Options) -> Bench:
    if not _BENCHES or _BENCHES[0].options != options:
        _end()
        _BENCHES.append(Bench(options))
    return _BENCHES[0]


def _end() -> None:
    while _BENCHES:
        _BENCHES.pop().close()


atexit.register(_end)  # workers end with their judge anyway: this is the tidy way
