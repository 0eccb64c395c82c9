"""The function that a cluster's node runs: it judges one case after another and keeps the subjects' workers running."""

from __future__ import annotations

import atexit

from gates.model import ConfigurationError
from gates.registry import load
from gates.run.engines.subject_workers import SubjectWorkers
from gates.run.engines.units import Unit, judged_text
from gates.run.plan import Options

_LATEST: list[SubjectWorkers] = []  # of the latest options only: a mutant needs its own workers


def judge(text: str) -> dict[str, str]:
    """Judge one unit: JSON in, JSON out, or the reason why this node cannot."""
    unit = Unit.read(text)
    try:
        planned = unit.find(load())
        return {"judged": judged_text(_workers(unit.options).judge(planned))}
    except ConfigurationError as error:
        return {"refused": str(error)}


def _workers(options: Options) -> SubjectWorkers:
    if not _LATEST or _LATEST[0].options != options:
        _end()
        _LATEST.append(SubjectWorkers(options))
    return _LATEST[0]


def _end() -> None:
    while _LATEST:
        _LATEST.pop().close()


atexit.register(_end)  # workers end with their parent process anyway; this ends them in order
