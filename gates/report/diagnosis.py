"""Diagnoses in words, for every report."""

from __future__ import annotations

from gates.results.records import DiagnosisRecord


def words(found: DiagnosisRecord | None) -> str:
    """Return what is computed instead, or where it differs; nothing where neither is known."""
    if found is None:
        return ""
    if found.computes:
        verb = "" if found.kind == "ambiguous" else "computes: "
        return f"{verb}{found.computes}"
    if found.kind == "as asked":
        return "computes what is asked on ordinary inputs: the difference lies in what these cases add"
    return f"computes nothing that is known; {found.where}" if found.where else "computes nothing that is known"
