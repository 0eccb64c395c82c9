"""Describe diagnoses in words, for every report."""

from __future__ import annotations

from dataclasses import replace

from gates.results.jsonl import Results
from gates.results.records import DiagnosisRecord
from gates.run.settle import settled_run


def words(diagnosis: DiagnosisRecord | None) -> str:
    """Return what the op computes instead, or where it differs; empty if neither is known."""
    if diagnosis is None:
        return ""
    if diagnosis.computes:
        meant = f"; declare {diagnosis.declare} if it is meant" if diagnosis.declare else ""
        return f"{computing(diagnosis.computes)}{meant}"
    if diagnosis.kind == "as asked":
        return "computes what is asked on ordinary inputs: the difference lies in what these cases add"
    return f"computes nothing that is known; {diagnosis.where}" if diagnosis.where else "computes nothing that is known"


def computing(name: str) -> str:
    """Return `computes: NAME`, or the name alone if it says what cannot be told."""
    return name if name.startswith("cannot ") else f"computes: {name}"


def named(run: Results) -> Results:
    """Return a run whose cases of another choice are `differs` and say in their reason which one, with the word to declare."""
    known = {(record.subject, record.op): words(record) for record in run.diagnoses}
    settled = settled_run(run)
    verdicts = [
        verdict.model_copy(update={"reason": f"{known[verdict.subject, verdict.op]}; {verdict.reason}"})
        if verdict.status == "differs" and (verdict.subject, verdict.op) in known
        else verdict
        for verdict in settled.verdicts
    ]
    return replace(settled, verdicts=verdicts)
