"""Describe diagnoses in words, for every report."""

from __future__ import annotations

from gates.results.records import DiagnosisRecord


def words(diagnosis: DiagnosisRecord | None) -> str:
    """Return what the op computes instead, or where it differs; empty if neither is known."""
    if diagnosis is None:
        return ""
    if diagnosis.computes:
        verb = "" if diagnosis.kind == "ambiguous" else "computes: "
        meant = f"; declare {diagnosis.declare} if it is meant" if diagnosis.declare else ""
        return f"{verb}{diagnosis.computes}{meant}"
    if diagnosis.kind == "as asked":
        return "computes what is asked on ordinary inputs: the difference lies in what these cases add"
    return f"computes nothing that is known; {diagnosis.where}" if diagnosis.where else "computes nothing that is known"
