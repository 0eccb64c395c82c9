"""Settle the verdicts of a run by its diagnoses: a wrong op that makes another choice differs, and may be waived as such.

A verdict is `wrong` when it is written, since an op is diagnosed after all of its cases were judged; a `settled` line at
the end of the file says which of them are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from gates.model import STATUSES, Status, Verdict
from gates.results.jsonl import Results
from gates.results.records import DiagnosisRecord, HeaderRecord, SettledRecord, VerdictRecord, WaivedRecord
from gates.run.differing import differing
from gates.run.waivers import Waivers

AnyVerdict = Verdict | VerdictRecord


def only_choices(verdicts: Iterable[AnyVerdict], named: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the subjects and ops that differ: named as another choice, and wrong at level definition alone.

    Args:
        verdicts: of a run; those that are not wrong may be left out.
        named: subjects and ops whose diagnosis is another choice.
    """
    return named - {(v.subject, v.op) for v in verdicts if _wrong(v) and v.level != "definition"}


def settled(
    verdicts: Iterable[AnyVerdict], diagnoses: Iterable[DiagnosisRecord], waivers: Waivers | None = None
) -> list[AnyVerdict]:
    """Return the verdicts with `differs` instead of `wrong` for ops that make another choice, or `waived`."""
    return settled_by_name(list(verdicts), differing(diagnoses), waivers)


def settled_by_name(
    verdicts: Sequence[AnyVerdict], named: frozenset[tuple[str, str]], waivers: Waivers | None = None
) -> list[AnyVerdict]:
    """Return the same, given subjects and ops whose diagnosis is another choice."""
    ops = only_choices(verdicts, named)
    if not ops:
        return list(verdicts)
    return [_differs(v, waivers) if _wrong(v) and (v.subject, v.op) in ops else v for v in verdicts]


def settled_run(run: Results) -> Results:
    """Return a recorded run with settled verdicts, and a summary that counts them."""
    if not run.diagnoses:
        return run
    verdicts = settled_records(run, run.verdicts)
    counts = Counter(verdict.status for verdict in verdicts)
    every = {"counts": {status: counts[status] for status in STATUSES}}
    return replace(run, verdicts=verdicts, summary=run.summary and run.summary.model_copy(update=every))


def settled_records(run: Results, verdicts: Sequence[VerdictRecord]) -> list[VerdictRecord]:
    """Return verdicts of a recorded run, all wrong ones among them, settled by its diagnoses."""
    if not run.diagnoses:
        return list(verdicts)
    settled_verdicts = settled(verdicts, run.diagnoses, waivers_of(run.header))
    return [verdict for verdict in settled_verdicts if isinstance(verdict, VerdictRecord)]


def settled_lines(
    verdicts: Sequence[AnyVerdict], named: frozenset[tuple[str, str]], waivers: Waivers | None = None
) -> list[SettledRecord]:
    """Return a line for each op that makes another choice, with the `wrong` cases that it settles.

    Args:
        verdicts: of a run; those that are not wrong may be left out.
        named: subjects and ops whose diagnosis is another choice.
        waivers: of the run; an op of which they waive some cases has two lines.
    """
    cases: dict[tuple[str, str, Status], dict[str, list[str]]] = {}
    for before, after in zip(verdicts, settled_by_name(verdicts, named, waivers), strict=True):
        if before.status != after.status:
            of_op = cases.setdefault((after.subject, after.op, after.status), {})
            of_op.setdefault(after.gate, []).append(after.case)
    return [
        SettledRecord(
            subject=subject, op=op, status=status, cases={gate: sorted(of_op[gate]) for gate in sorted(of_op)}
        )
        for (subject, op, status), of_op in sorted(cases.items())
    ]


def settled_lines_of(run: Results) -> list[SettledRecord]:
    """Return these lines of a recorded run, which an older or interrupted one lacks."""
    return settled_lines(run.judged, differing(run.diagnoses), waivers_of(run.header)) if run.diagnoses else []


def waivers_of(header: HeaderRecord) -> Waivers:
    """Return the waivers of a recorded run, on the day on which it began."""
    return Waivers(header.waivers, datetime.fromisoformat(header.started).date())


def _wrong(verdict: AnyVerdict) -> bool:
    return verdict.status == "wrong" and not _mutated(verdict)


def _mutated(verdict: Verdict | VerdictRecord) -> bool:
    return isinstance(verdict, VerdictRecord) and verdict.mutant is not None


def _differs(verdict: AnyVerdict, waivers: Waivers | None) -> AnyVerdict:
    waived = None if waivers is None else waivers.waived(verdict, "differs")
    if isinstance(verdict, Verdict):
        return replace(verdict, status="waived" if waived else "differs", waived=waived)
    record = None if waived is None else WaivedRecord.model_validate(waived, from_attributes=True)
    return verdict.model_copy(update={"status": "waived" if waived else "differs", "waived": record})
