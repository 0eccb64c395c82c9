"""Diagnose the items whose definition does not hold, so that none calls another choice a mistake."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gates.model import Verdict
from gates.report.diagnosis import words
from gates.results.records import DiagnosisRecord
from gates.run.plan import Options, PlannedCase

UNDECIDED = frozenset(("as asked", "ambiguous"))  # kinds of a diagnosis that leave another case's choice open
Key = tuple[str, str, frozenset[str]]  # subject, op, and the conventions that a case switches on


@dataclass(slots=True)
class Choices:
    """The diagnoses of a session, one for each op and each set of conventions that its failing cases switch on."""

    options: Options
    _records: dict[Key, DiagnosisRecord | None] = field(default_factory=dict)
    _named: dict[tuple[str, str], DiagnosisRecord] = field(default_factory=dict)

    def settled(self, planned: PlannedCase, verdict: Verdict) -> Verdict:
        """Return a verdict on a wrong definition as `differs`, with the name of the choice, if another choice explains it."""
        if verdict.status != "wrong" or verdict.level != "definition" or not verdict.evidence:
            return verdict
        record = self._record(planned, verdict)
        if record is not None and record.kind == "convention":
            self._named.setdefault((verdict.subject, verdict.op), record)
        elif record is None or record.kind in UNDECIDED:
            record = self._named.get((verdict.subject, verdict.op))
        else:
            record = None
        if record is None:
            return verdict
        return replace(verdict, status="differs", reason=f"{words(record)}; {verdict.reason}")

    def _record(self, planned: PlannedCase, verdict: Verdict) -> DiagnosisRecord | None:
        from gates.diagnosis.collect import Diagnoser  # noqa: PLC0415  the programs of all families

        conventions = planned.case.conventions.items()
        switched_on = frozenset(name for name, choice in conventions if choice is not None and choice is not False)
        key = (verdict.subject, verdict.op, switched_on)
        if key not in self._records:
            diagnoser = Diagnoser([planned], self.options)
            diagnoser.note(verdict)
            self._records[key] = next(iter(diagnoser.run()), None)
        return self._records[key]
