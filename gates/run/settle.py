"""Settle the verdicts of a run by its diagnoses: a wrong op that makes another choice differs, and may be waived as such.

A verdict is `wrong` when it is written, since an op is diagnosed after all of its cases were judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

from gates.model import Verdict
from gates.results.jsonl import Results
from gates.results.records import DiagnosisRecord, VerdictRecord, WaivedRecord
from gates.run.differing import differing
from gates.run.waivers import Waivers

AnyVerdict = Verdict | VerdictRecord


def only_choices(
    wrong: Collection[tuple[str, str, str]], named: frozenset[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    """Return the subjects and ops that differ: named as another choice, and wrong at level definition alone.

    Args:
        wrong: subject, op and level of each wrong verdict.
        named: subjects and ops whose diagnosis is another choice.
    """
    return named - {(subject, op) for subject, op, level in wrong if level != "definition"}


def settled(
    verdicts: Iterable[AnyVerdict], diagnoses: Iterable[DiagnosisRecord], waivers: Waivers | None = None
) -> list[AnyVerdict]:
    """Return the verdicts with `differs` instead of `wrong` for ops that make another choice, or `waived`."""
    verdicts = list(verdicts)
    wrong = {(v.subject, v.op, v.level) for v in verdicts if v.status == "wrong" and not _mutated(v)}
    ops = only_choices(wrong, differing(diagnoses))
    if not ops:
        return verdicts
    return [
        _differs(verdict, waivers)
        if verdict.status == "wrong" and (verdict.subject, verdict.op) in ops and not _mutated(verdict)
        else verdict
        for verdict in verdicts
    ]


def settled_run(run: Results) -> Results:
    """Return a recorded run with settled verdicts."""
    if not run.diagnoses:
        return run
    waivers = Waivers(run.header.waivers, datetime.fromisoformat(run.header.started).date())
    verdicts = settled(run.verdicts, run.diagnoses, waivers)
    return replace(run, verdicts=[verdict for verdict in verdicts if isinstance(verdict, VerdictRecord)])


def _mutated(verdict: Verdict | VerdictRecord) -> bool:
    return isinstance(verdict, VerdictRecord) and verdict.mutant is not None


def _differs(verdict: AnyVerdict, waivers: Waivers | None) -> AnyVerdict:
    waived = None if waivers is None else waivers.waived(verdict, "differs")
    if isinstance(verdict, Verdict):
        return replace(verdict, status="waived" if waived else "differs", waived=waived)
    record = None if waived is None else WaivedRecord.model_validate(waived, from_attributes=True)
    return verdict.model_copy(update={"status": "waived" if waived else "differs", "waived": record})
