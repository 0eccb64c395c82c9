"""What costs no grade in words: input that no pipeline produces, and layouts that raise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gates.report.grades import OpGrade
from gates.results.escape import one_line

FEW = 3  # ops that are named


def hardening(grades: Sequence[OpGrade]) -> str:
    """Return on how many inputs that no pipeline produces the ops hold; empty if on all."""
    failing_ops = [grade for grade in grades if grade.hardening[0] < grade.hardening[1]]
    if not failing_ops:
        return ""
    held, asked = (sum(grade.hardening[i] for grade in grades) for i in (0, 1))
    names = ", ".join(one_line(grade.op) for grade in failing_ops[:FEW])
    more = f" and {len(failing_ops) - FEW} more" if len(failing_ops) > FEW else ""
    return f"{held} of {asked} cases hold, on input that no pipeline produces; not {names}{more}"


def raising(grades: Sequence[OpGrade]) -> Iterator[str]:
    """Yield the exceptions in cases that are not plain, of the ops that raise most often."""
    for grade in sorted((grade for grade in grades if grade.raising[0]), key=lambda grade: -grade.raising[0])[:FEW]:
        count, reason, case = grade.raising
        cases = "case that is not plain" if count == 1 else "cases that are not plain"
        yield one_line(f"in {count} {cases}, such as {case}: {reason}")
