"""Subjects whose answers are damaged, written as a user writes his own, and the verdicts on them."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from command_line import CACHED

from gates.model import Gate, Subject, Verdict
from gates.registry import load
from gates.run.engines.pool import Pool
from gates.run.engines.subject_workers import SubjectWorkers
from gates.run.execute import run
from gates.run.plan import Options, PlannedCase, plan
from gates.worker.process import Worker

BROKEN = """
from pathlib import Path
import numpy as np
from gates.subjects.{host} import subject as whole

DAMAGE = Path(__file__).with_name("damage.py")

def broken(**inputs):
    scope = {{**globals(), "inputs": inputs, "found": dict(whole.OPS["{op}"](**inputs))}}
    exec(DAMAGE.read_text(), scope)
    return scope["found"]

OPS = {{**whole.OPS, "{op}": broken}}
CONVENTIONS = {conventions}
"""


@dataclass(frozen=True, slots=True)
class Broken:
    """A subject that is another one but for a statement that changes what an op has `found`."""

    host: str
    op: str
    conventions: str
    damage: str = field(compare=False)  # read at each call, so that one worker serves every damage


def broken(
    op: str, damage: str, host: str = "numpy_baseline", conventions: Mapping[str, Mapping[str, Any]] | None = None
) -> Broken:
    """Return a subject whose answers for an op are damaged."""
    return Broken(host, op, repr(conventions or {}), damage)


def verdicts(
    folder: Path,
    code: str | Broken,
    gate: str | Gate,
    case: str = "",
    *,
    quick: bool = True,
    most: int | None = None,
    seed: int = 0,
) -> list[Verdict]:
    """Judge a subject by a gate: all cases, those with `case` in their name, or the first `most`."""
    subject = _of_source(folder, code) if isinstance(code, str) else _of_damage(code)
    gates = [load().gates[gate] if isinstance(gate, str) else gate]
    cases = [planned for planned in plan(gates, [subject], quick=quick, proof=True) if case in planned.case.name][:most]
    assert cases
    options = Options(quick=quick, seed=seed)
    if isinstance(code, str):
        return [judged.verdict for judged in run(cases, options, partial(Pool, cached=CACHED))]
    return _with_kept_worker(cases, options)


def _of_source(folder: Path, code: str) -> Subject:
    (folder / "broken.py").write_text(code)
    return Subject("broken", folder / "broken.py", "subject_broken")


def _of_damage(code: Broken) -> Subject:
    subject = _undamaged(code)
    block = f"if True:\n    {code.damage}"  # whose further lines are indented as in a function
    subject.entry.with_name("damage.py").write_text(block)
    return subject


@cache
def _undamaged(code: Broken) -> Subject:
    folder = Path(tempfile.mkdtemp(prefix="broken-"))
    source = BROKEN.format(host=code.host, op=code.op, conventions=code.conventions)
    return _of_source(folder, source)


_kept: dict[Path, Worker] = {}  # the last worker: starting one that imports MLX takes seconds


def _with_kept_worker(cases: Sequence[PlannedCase], options: Options) -> list[Verdict]:
    """Judge the cases of one subject with the worker that its last damage has left."""
    subject = cases[0].subject
    workers = SubjectWorkers(options, CACHED)
    if subject.entry in _kept:
        workers.workers[subject.name] = _kept[subject.entry]
    else:
        _close()
    try:
        return [workers.judge(planned).verdict for planned in cases]
    finally:
        _kept.update((subject.entry, worker) for worker in workers.workers.values())


@atexit.register
def _close() -> None:
    while _kept:
        _kept.popitem()[1].close()
