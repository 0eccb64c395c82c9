"""Honest programs of the KL and of preference losses are never wrong, and conventions are asked of those that have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates.model import Subject, Verdict
from gates.registry import load
from gates.run.execute import run
from gates.run.plan import Options, plan

HONEST = Path(__file__).parents[2] / "honest"


def judged(file: str, *families: str, quick: bool = True) -> list[Verdict]:
    """Return the verdicts of a file of tests/honest."""
    entry = HONEST / f"{file}.py"
    subject = Subject(file, entry, f"honest_{file}")
    gates = load().select(families)
    return [one.verdict for one in run([*plan(gates, [subject], quick=quick)], Options(quick=quick))]


@pytest.mark.parametrize(
    ("file", "family"),
    [
        ("numpy_kl", "kl"),
        ("numpy_kl_other", "kl"),
        ("mlx_kl", "kl"),
        ("numpy_preference", "preference"),
        ("numpy_preference_other", "preference"),
        ("mlx_preference", "preference"),
    ],
)
def test_an_honest_program_is_never_wrong(file: str, family: str) -> None:
    """It may be imprecise, or fragile where a case is hostile."""
    found = judged(file, family)
    asked = [verdict for verdict in found if verdict.status not in {"unsupported", "skipped"}]
    assert len(asked) > len(found) / 2
    bad = [(v.gate, v.case, v.reason) for v in asked if v.status not in {"correct", "imprecise", "fragile"}]
    assert not bad
    assert all(v.level == "robustness" for v in asked if v.status == "fragile")


def test_prompts_may_be_scored_where_both_completions_have_the_same() -> None:
    """A subject that declares so is asked these cases alone, and its prompts' gradients cancel."""
    found = judged("numpy_preference_prompts", "preference.dpo", "preference.hinge", "preference.ipo", quick=False)
    asked = [verdict for verdict in found if verdict.status != "unsupported"]
    assert {verdict.case.rpartition("-")[0].partition("-")[2] for verdict in asked} == {"shared-prompt"}
    assert len(asked) == 3
    assert {verdict.status for verdict in asked} <= {"correct", "imprecise"}
