"""Subjects whose answers are damaged, written as a user writes his own, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gates.model import Gate, Subject, Verdict
from gates.registry import load
from gates.run.execute import run
from gates.run.plan import Options, plan

BROKEN = """
import numpy as np
from gates.subjects.{host} import subject as whole

def broken(**inputs):
    found = dict(whole.OPS["{op}"](**inputs))
    {damage}
    return found

OPS = {{**whole.OPS, "{op}": broken}}
CONVENTIONS = {conventions!r}
"""


def broken(
    op: str, damage: str, host: str = "numpy_baseline", conventions: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """Return the source of a subject that is another one but for a statement that changes what an op has `found`."""
    return BROKEN.format(op=op, damage=damage, host=host, conventions=conventions or {})


def verdicts(
    folder: Path,
    code: str,
    gate: str | Gate,
    case: str = "",
    *,
    quick: bool = True,
    most: int | None = None,
    seed: int = 0,
) -> list[Verdict]:
    """Judge a subject of this source by a gate: all cases, those with `case` in their name, or the first `most`."""
    (folder / "broken.py").write_text(code)
    subject = Subject("broken", folder / "broken.py", "subject_broken")
    gates = [load().gates[gate] if isinstance(gate, str) else gate]
    cases = [planned for planned in plan(gates, [subject], quick=quick, proof=True) if case in planned.case.name][:most]
    assert cases
    return [judged.verdict for judged in run(cases, Options(quick=quick, seed=seed))]
