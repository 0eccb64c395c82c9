"""Mistakes that all rollout paths share are seen against the definition; those in a calibration are the subject's fault."""

from __future__ import annotations

import pytest

from gates.model import Verdict
from gates.registry import load
from gates.run.execute import run
from gates.run.plan import Options, PlannedCase

PATHS = ("rollout.batched.equals-naive", "hf-filters")  # the limit of its distances is measured on the subject
SCORES = ("scoring.log-probs.match-logits", "qwen3-scored")  # and so is this one
NOISE = "8F, F the largest distance of the naive path's log-probs from float64"


def verdict(mutant: str, gate: str, case: str) -> Verdict:
    """Judge one case of the MLX trainer with a mistake of the catalogue."""
    known = load()
    planned = PlannedCase(
        known.gates[gate],
        known.subjects["reference"],
        next(one for one in known.gates[gate].cases if one.name == case),
    )
    one = known.mutants[f"rollout.{mutant}"]
    (judged,) = run([planned], Options(mutant={"target": one.target, "patch": one.patch}))
    assert judged.patched_calls >= 1
    return judged.verdict


def failed(found: Verdict) -> set[str]:
    """The quantities whose claim does not hold."""
    return {item.quantity for item in found.evidence if not item.holds}


class TestAllPathsShareIt:
    """The paths agree with each other, token for token."""

    @pytest.mark.parametrize(
        ("mutant", "quantity"),
        [
            pytest.param("temperature-inert-everywhere", "unexplained differences", marks=pytest.mark.long),
            pytest.param("top-p-inert-everywhere", "unexplained differences", marks=pytest.mark.long),
            ("counter-off-everywhere", "draws that did not use their keyed uniform"),
        ],
    )
    def test_it_is_wrong_by_the_definition(self, mutant: str, quantity: str) -> None:
        """Each token is held against the oracle's draw from the path's own logits, with the uniform of its key."""
        found = verdict(mutant, *PATHS)
        assert (found.status, found.cause) == ("wrong", "bound")
        assert quantity in failed(found)
        assert "explained differences" not in failed(found)


class TestTheCalibrationIsDisturbed:
    """The noise from which a gate takes its limit is measured on the subject that it judges."""

    @pytest.mark.parametrize(
        ("mutant", "gate", "case"),
        [
            ("first-token-lost-everywhere", *PATHS),
            pytest.param("first-token-lost-everywhere", *SCORES, marks=pytest.mark.long),
            pytest.param("naive-in-bfloat16", *PATHS, marks=pytest.mark.long),
            ("naive-in-bfloat16", *SCORES),
        ],
    )
    def test_it_is_the_subjects_fault(self, mutant: str, gate: str, case: str) -> None:
        """A limit that would let everything pass is no error of the gate."""
        found = verdict(mutant, gate, case)
        assert (found.status, found.cause) == ("wrong", "control")
        assert NOISE in failed(found)
