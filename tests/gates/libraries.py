"""Records of how libraries were graded, to try reports on."""

from __future__ import annotations

from gates.results.conformance_records import ConformanceHeader, FindingRecord, GradeRecord
from gates.results.records import Machine


def header(peer: str) -> ConformanceHeader:
    """Return the header of a library's record."""
    return ConformanceHeader(
        peer=peer,
        version="1.2",
        versions={peer: "1.2"},
        started="2026-11-25T08:00:00+00:00",
        commit="abc",
        dirty=False,
        definitions="2.0",
        machine=Machine(system="Linux", cpu="a processor", cores=2, features=[]),
        quick=False,
        seconds=12.0,
    )


def grade(subject: str, op: str, status: str, findings: tuple[str, ...] = ()) -> GradeRecord:
    """Return the grade of an op, `correct` in all of its cases or another in some."""
    return GradeRecord(
        subject=subject,
        op=op,
        grade=status,
        cases=8,
        of_this_grade=8 if status == "correct" else 3,
        not_judged=1,
        gate="kl.k3.matches-definition",
        case="ragged",
        reason="" if status == "correct" else "kl error",
        computes="" if status == "correct" else "computes: another",
        findings=list(findings),
    )


def finding(name: str, kind: str, *, reproduced: bool | None = True) -> FindingRecord:
    """Return a finding about the KL estimate k3."""
    return FindingRecord(
        id=name,
        kind=kind,
        grade="wrong",
        use="option",
        departures=["another ratio"],
        ops=["token_kl[k3]"],
        where="fake/kl.py:3",
        says="The ratio is inverted.",
        computes="exp(-d) + d - 1",
        number="2 | 3",
        consequence="The penalty pulls the other way.",
        repro="assert True\n",
        reproduced=reproduced,
        output="2 3",
    )
