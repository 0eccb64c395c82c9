"""What `gates identify` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gates.diagnosis.identify import Identified
from gates.errors import ExitCode
from gates.results.escape import one_line

NAMED = frozenset(("as asked", "convention", "mistake", "scaled", "lower precision"))


def lines(subject: str, found: Identified) -> str:
    """Return an op's name, what it computes, and how sure that is."""
    if found.diagnosis is None:
        return one_line(f"{found.op}  {found.reason}")
    diagnosis, settings = found.diagnosis, " ".join(f"{name}={value}" for name, value in found.settings.items())
    called = f"  {found.inputs} designed calls with {settings}; {diagnosis.tried} definitions compared"
    if diagnosis.kind == "nothing known":
        words = f"nothing that is known{f'; {diagnosis.where}' if diagnosis.where else ''}"
    else:
        words = "what its settings ask for" if diagnosis.kind == "as asked" else diagnosis.words
        called += f"; error {diagnosis.rho:.2g} of its limits"
    verb = "" if diagnosis.kind == "ambiguous" else "computes: "
    return "\n".join(map(one_line, (f"{found.op} of {subject}  {verb}{words}", called)))


def record(subject: str, found: Identified) -> dict[str, Any]:
    """Return the same as JSON."""
    base = {"subject": subject, "op": found.op, "inputs": found.inputs, "settings": dict(found.settings)}
    if found.diagnosis is None:
        return {**base, "kind": "not called", "computes": "", "reason": found.reason}
    diagnosis = found.diagnosis
    rho = None if math.isnan(diagnosis.rho) else diagnosis.rho
    return {**base, "kind": diagnosis.kind, "computes": diagnosis.words, "where": diagnosis.where, "rho": rho}


def exit_code(found: Sequence[Identified]) -> ExitCode:
    """Return 0 if each op was named, 1 if one was not, 3 if none was called."""
    called = [one.diagnosis for one in found if one.diagnosis is not None]
    if not called:
        return ExitCode.NOTHING
    return ExitCode.HELD if all(one.kind in NAMED for one in called) else ExitCode.FAILED
