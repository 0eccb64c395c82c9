"""Recorded runs of any verdicts, as readers of results files meet them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gates.model import STATUSES, Evidence, Level, Status, Verdict, failing
from gates.results.integrity import HELD_BY
from gates.results.jsonl import Results, Writer, read
from gates.results.records import (
    CounterexampleRecord,
    HeaderRecord,
    Machine,
    Record,
    SummaryRecord,
    VerdictRecord,
    verdict_record,
)

HELD = Evidence("kl error in 2u·S", 1.5, "<=", 4.0, "rounding", "at [0]")
BROKEN = Evidence("kl error in 2u·S", float("nan"), "<=", 4.0, "rounding", "at [1]")
HOSTILE = "</script><script>alert(1)</script>\n::error::x\x1b[31m [/red] & \"quoted\" 'x' | %0A"

LEVELS: dict[str, Level] = {"fragile": "robustness", "imprecise": "precision"}

WORDS = "completion 3 of 4, token 7: got 0, want -0.03125; ratio just above 1 + ε_high"
FILE = "run.counterexamples/a b;rm.safetensors"


def header(**changes: Any) -> HeaderRecord:
    values: dict[str, Any] = {
        "verb": "check",
        "command": ["check"],
        "started": "2026-11-21T00:00:00+00:00",
        "tool": "rl-gates 0",
        "commit": "c" * 40,
        "dirty": False,
        "machine": Machine(system="Linux", cpu="a processor", cores=2, features=["avx2"]),
        "python": "3.11",
        "numpy": "2",
        "blas": "openblas",
        "jobs": 1,
        "threads": 1,
        "seed": 0,
        "quick": False,
        "model": None,
        "gates": ["kl.k3"],
        "subjects": ["mine"],
        "planned": 0,
    }
    return HeaderRecord(**{**values, **changes})


def verdict(
    status: Status = "correct",
    *,
    gate: str = "kl.k3",
    subject: str = "mine",
    case: str = "some",
    reason: str = "",
    **more: Any,
) -> VerdictRecord:
    evidence = (HELD,) if status == "correct" else (HELD, BROKEN) if status == "wrong" else ()
    words = reason or ("" if status == "correct" else BROKEN.sentence() if status == "wrong" else f"why it is {status}")
    cause = more.pop("cause", {"correct": "held", "wrong": "bound"}.get(status, status))
    mutant = more.pop("mutant", None)
    known: dict[str, Any] = {
        "op": gate,
        "level": LEVELS.get(status, "definition"),
        "evidence": evidence,
        "seconds": 0.25,
        **more,
    }
    return verdict_record(Verdict(gate, subject, case, 7, status, cause, words, **known), mutant)


def smallest(case: str = "other", **more: Any) -> CounterexampleRecord:
    """Return the record of one that became 6 numbers of 900 before the time was over."""
    values: dict[str, Any] = {"gate": "kl.k3", "subject": "mine", "case": case, "seed": 7, "file": FILE, "words": WORDS}
    return CounterexampleRecord(**{**values, "elements_before": 900, "elements_after": 6, "finished": False, **more})


def none(gate: str) -> CounterexampleRecord:
    """Return the record of a failure that was not made smaller."""
    return smallest(
        gate=gate, file=None, words="a whole model", elements_before=None, elements_after=None, finished=None
    )


def write(
    path: Path,
    verdicts: Sequence[VerdictRecord],
    *,
    complete: bool = True,
    problems: Sequence[str] = (),
    also: Sequence[Record] = (),
    **changes: Any,
) -> Results:
    """Write a run, the summary being that of its verdicts, and read it back."""
    gates, subjects = (sorted({getattr(v, name) for v in verdicts}) for name in ("gate", "subject"))
    writer = Writer(path)
    lines: list[Record] = [
        header(**{"gates": gates, "subjects": subjects, "planned": len(verdicts), **changes}),
        *verdicts,
        *also,
    ]
    counts = Counter(v.status for v in verdicts)
    if complete:
        held = 0 if any(counts[status] for status in HELD_BY) else 3
        bad = any(counts[status] for status in failing(lines[0].fail_on))
        code = 1 if bad or problems else 4 if counts["error"] else held
        every: dict[Status, int] = {status: counts[status] for status in STATUSES}
        lines.append(SummaryRecord(counts=every, seconds=1.0, exit_code=code, problems=list(problems)))
    for line in lines:
        writer.write(line)
    writer.close()
    return read(path)
