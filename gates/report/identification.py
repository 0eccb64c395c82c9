"""Show which definition each op computes (`gates identify`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gates.diagnosis.identify import Identified
from gates.errors import ExitCode
from gates.report.diagnosis import computing
from gates.results.escape import one_line

NAMED = frozenset(("as asked", "convention", "mistake", "scaled", "constant"))  # of lower precision nothing can be told


def lines(subject: str, identified: Identified) -> str:
    """Return an op's name, what it computes, and how sure that is."""
    if identified.diagnosis is None:
        return one_line(f"{identified.op}  {identified.reason}")
    diagnosis, settings = (
        identified.diagnosis,
        " ".join(f"{name}={value}" for name, value in identified.settings.items()),
    )
    called = f"  {identified.inputs} designed calls with {settings}; {diagnosis.tried} definitions compared"
    if diagnosis.kind == "nothing known":
        words = f"nothing that is known{f'; {diagnosis.where}' if diagnosis.where else ''}"
    else:
        asked = "what its settings ask for"
        words = diagnosis.words.replace("as asked", asked) if diagnosis.kind == "as asked" else diagnosis.words
        called += f"; error {diagnosis.rho:.2g} of its limits"
    untried = ", ".join(identified.untried)
    parts = [called, *([f"  not tried: {untried}; gates check asks these"] if untried else [])]
    return "\n".join(map(one_line, (f"{identified.op} of {subject}  {computing(words)}", *parts)))


def record(subject: str, identified: Identified) -> dict[str, Any]:
    """Return the same as JSON."""
    base = {"subject": subject, "op": identified.op, "inputs": identified.inputs, "settings": dict(identified.settings)}
    if identified.diagnosis is None:
        return {**base, "kind": "not called", "computes": "", "reason": identified.reason}
    diagnosis = identified.diagnosis
    rho = None if math.isnan(diagnosis.rho) else diagnosis.rho
    return {
        **base,
        "kind": diagnosis.kind,
        "computes": diagnosis.words,
        "where": diagnosis.where,
        "rho": rho,
        "untried": identified.untried,
    }


def exit_code(ops: Sequence[Identified]) -> ExitCode:
    """Return 0 if each op was named, 1 if one was not, 3 if none was called."""
    diagnoses = [op.diagnosis for op in ops if op.diagnosis is not None]
    if not diagnoses:
        return ExitCode.NOTHING
    return ExitCode.HELD if all(diagnosis.kind in NAMED for diagnosis in diagnoses) else ExitCode.FAILED
