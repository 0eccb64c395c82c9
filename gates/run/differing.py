"""Tell another known choice from a mistake, by the diagnoses of a run."""

from __future__ import annotations

from collections.abc import Iterable

from gates.results.records import DiagnosisRecord


def differing(records: Iterable[DiagnosisRecord]) -> frozenset[tuple[str, str]]:
    """Return the subjects and ops that compute another composition of choices that libraries make on purpose."""
    return frozenset((record.subject, record.op) for record in records if record.kind == "convention")
