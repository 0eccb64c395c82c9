"""Honest programs of the KL and of preference losses are never wrong, and conventions are asked of those that have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken import verdicts

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
    """It may be imprecise, fragile in a rare case, or fail where a case is hostile."""
    found = judged(file, family)
    asked = [verdict for verdict in found if verdict.status not in {"unsupported", "skipped"}]
    assert len(asked) > len(found) / 2
    bad = [
        (v.gate, v.case, v.reason) for v in asked if v.status not in {"correct", "imprecise", "fragile", "hardening"}
    ]
    assert not bad
    assert all(v.level == "robustness" for v in asked if v.status == "fragile")


def test_prompts_may_be_scored_where_both_completions_have_the_same() -> None:
    """A subject that declares so is asked these cases alone, and its prompts' gradients cancel."""
    found = judged("numpy_preference_prompts", "preference.dpo", "preference.hinge", "preference.ipo", quick=False)
    asked = [verdict for verdict in found if verdict.status != "unsupported"]
    assert {verdict.case.rpartition("-")[0].partition("-")[2] for verdict in asked} == {"shared-prompt"}
    assert len(asked) == 3
    assert {verdict.status for verdict in asked} <= {"correct", "imprecise"}


def changed(folder: Path, file: str, declared: str, gate: str) -> dict[str, str]:
    """Return the status of each case of a gate for an honest program that declares other conventions."""
    code = (HONEST / f"{file}.py").read_text() + f"\nCONVENTIONS = {declared}\n"
    return {verdict.case: verdict.status for verdict in verdicts(folder, code, gate, quick=False)}


def test_prompts_that_are_scored_undeclared_are_wrong(tmp_path: Path) -> None:
    """Where the two prompts differ they do not cancel; where they are the same the loss is right."""
    found = changed(tmp_path, "numpy_preference_prompts", "{}", "preference.hinge.matches-definition")
    assert found["plain-ordinary-float32"] == "wrong"
    assert found["plain-shared-prompt-float32"] in {"correct", "imprecise"}


def test_a_clamp_that_is_declared_alone_is_the_only_one_that_is_asked(tmp_path: Path) -> None:
    """As in verl, whose low_var_kl is always clamped to 10."""
    found = changed(tmp_path, "numpy_kl", "{'token_kl': {'kl_clamp': (10.0,)}}", "kl.k3.matches-definition")
    asked = {case: status for case, status in found.items() if status != "unsupported"}
    assert {case.partition("-")[0] for case in asked} == {"clamped"}
    assert set(asked.values()) <= {"correct", "imprecise"}


def test_another_clamp_is_not_asked(tmp_path: Path) -> None:
    """A declared number binds."""
    found = changed(tmp_path, "numpy_kl", "{'token_kl': {'kl_clamp': (20.0,)}}", "kl.k3.matches-definition")
    assert set(found.values()) == {"unsupported"}


def test_the_likelihood_of_all_tokens_is_a_convention(tmp_path: Path) -> None:
    """As in TRL's ORPO, which has no other."""
    declared = "{'preference_loss': {'nll_tokens': ('all',)}}"
    found = changed(tmp_path, "numpy_preference", declared, "preference.orpo.matches-definition")
    asked = {case for case, status in found.items() if status == "correct"}
    assert asked == {"plain-all-tokens-float32", "plain-all-tokens-float64"}
