"""Group advantages: each convention and mistake is named, ε is fitted, and nothing is named that is not so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edited import cases_of, changed, designed, gates_of, misnamed, of_oracle, pairs_misnamed

from gates.diagnosis.diagnose import diagnose, identify
from gates.families.advantages.edits import PRESETS
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.model import Array, Case
from reference.oracle.advantages import group_advantages, normalise_then_sum

PROGRAM = programs()["group_advantages"]
(GATE,) = gates_of(PROGRAM)
CASES = {case.name: case for case in cases_of(GATE)}
TRL, LIMIT = "group-mean-add-ddof1-float32", 0.5


def calls(name: str) -> list[Inputs]:
    return designed(PROGRAM, GATE, CASES[name])


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_the_oracle_computes_the_requested_choice(case: Case) -> None:
    """The forward definition shares no formula with the oracle, and gives the same advantages."""
    found = diagnose(PROGRAM, of_oracle(PROGRAM, designed(PROGRAM, GATE, case), group_advantages))
    assert (found.kind, found.rho < LIMIT) == ("as asked", True)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        (TRL, 0),
        ("none-mean-float32", 1),
        ("batch-mean-inside-ddof0-float32", 2),
        ("group-leave-one-out-threshold-ddof1-float32", 3),
        ("acting-threshold-ddof0-float32", 4),
        ("rlox-float64", 5),
    ],
)
def test_each_edit_is_named(name: str, first: int) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    assert misnamed(PROGRAM, calls(name), every=16, first=first) == []


def test_pairs_are_named() -> None:
    """Two mistakes at once have the names of both, or of words that are the same function."""
    assert pairs_misnamed(PROGRAM, calls(TRL), seed=5, count=6) == []


def test_the_description_of_a_ddof() -> None:
    """What is asked stands beside what is computed."""
    given = calls(TRL)
    samples = of_oracle(PROGRAM, [{**one, "ddof": 0} for one in given], group_advantages)
    found = diagnose(PROGRAM, [Sample(a, b.got) for a, b in zip(given, samples, strict=True)])
    assert (found.kind, found.words) == ("convention", "group z-score with ddof 0 (asked: 1)")


@pytest.mark.parametrize(
    ("eps", "mode", "words"),
    [(3e-5, "add", "std + 3e-05"), (2.5e-7, "inside", "√(var + 2.5e-07)"), (0.05, "add", "std + 0.05")],
)
def test_epsilon_is_fitted(eps: float, mode: str, words: str) -> None:
    """A size that nobody lists is solved for from what was returned."""
    given = calls(TRL)
    samples = of_oracle(PROGRAM, [{**one, "eps": eps, "eps_mode": mode} for one in given], group_advantages)
    single = [
        Sample(a, {"advantages": b.got["advantages"].astype(np.float32).astype(float)})
        for a, b in zip(given, samples, strict=True)
    ]
    found = diagnose(PROGRAM, single)
    assert (found.kind, words in found.words) == ("convention", True), found


class TestUnscored:
    """Rewards that are NaN are left out, counted as 0, or spread over their group."""

    def inputs(self) -> list[Inputs]:
        given = calls(TRL)
        holed = np.asarray(given[0]["rewards"]).copy()
        holed[1] = np.nan
        return list(PROGRAM.inputs({**given[0], "rewards": holed}, np.random.default_rng(3)))

    def test_left_out(self) -> None:
        """As the definition does."""
        assert diagnose(PROGRAM, of_oracle(PROGRAM, self.inputs(), group_advantages)).kind == "as asked"

    def test_edits(self) -> None:
        """Each has its name."""

        def as_zero(*, rewards: Array, **settings: Any) -> Array:
            return np.asarray(group_advantages(rewards=np.nan_to_num(rewards), **settings))

        def spread(*, rewards: Array, group_size: int, **settings: Any) -> Array:
            found = group_advantages(rewards=np.nan_to_num(rewards), group_size=group_size, **settings)
            holed = np.isnan(rewards).reshape(-1, group_size).any(axis=1).repeat(group_size)
            return np.where(holed, np.nan, found)

        found = diagnose(PROGRAM, of_oracle(PROGRAM, self.inputs(), as_zero))
        assert found.words == "unscored rewards counted as 0"
        found = diagnose(PROGRAM, of_oracle(PROGRAM, self.inputs(), spread))
        assert found.words == "one unscored reward makes its whole group NaN"


class TestNothingKnown:
    """Advantages that no edit describes get no name, but the place where they differ."""

    def test_where(self) -> None:
        """It is the rewards above their group's mean."""

        def above(inputs: Inputs) -> Array:
            groups = np.asarray(inputs["rewards"], float).reshape(-1, inputs["group_size"])
            return np.asarray(groups > groups.mean(axis=1, keepdims=True)).reshape(-1)

        found = diagnose(PROGRAM, changed(of_oracle(PROGRAM, calls(TRL), group_advantages), "advantages", above))
        assert (found.kind, found.words) == ("nothing known", "")
        assert found.where == "advantages differs only where R is above the mean of its group"

    def test_another_function(self) -> None:
        """Ranks of a group, less their mean, are none of the edits."""

        def ranks(*, rewards: Array, group_size: int, **_: Any) -> Array:
            order = rewards.reshape(-1, group_size).argsort(axis=1).argsort(axis=1)
            return np.asarray(order / (group_size - 1) - 0.5).reshape(-1)

        assert diagnose(PROGRAM, of_oracle(PROGRAM, calls(TRL), ranks)).kind == "nothing known"


@pytest.mark.parametrize("library", PRESETS)
@pytest.mark.parametrize("asked", [TRL, "group-mean-inside-ddof0-float32"])
def test_each_preset_is_identified(library: str, asked: str) -> None:
    """Whatever the call asks for, as a subject that has its own settings computes it."""
    given = calls(asked)
    samples = of_oracle(PROGRAM, [{**one, **PRESETS[library]} for one in given], group_advantages)
    found = identify(PROGRAM, [Sample(a, b.got) for a, b in zip(given, samples, strict=True)])
    assert (found.kind, library in found.words) == ("convention", True), found


class TestSeveralRewards:
    """Advantages from several reward functions."""

    program = programs()["normalise_then_sum"]

    def calls(self, case: Case) -> list[Inputs]:
        return designed(self.program, gates_of(self.program)[0], case)

    @pytest.mark.parametrize("case", cases_of(gates_of(program)[0]), ids=lambda case: case.name)
    def test_the_oracle_computes_the_requested_choice(self, case: Case) -> None:
        """In every case."""
        found = diagnose(self.program, of_oracle(self.program, self.calls(case), normalise_then_sum))
        assert (found.kind, found.rho < LIMIT) == ("as asked", True)

    def test_each_edit_is_named(self) -> None:
        """By its own words, or by those of another edit that is the same function of every input."""
        case = next(case for case in cases_of(gates_of(self.program)[0]) if "mixed" in case.name)
        assert misnamed(self.program, self.calls(case), every=3) == []

    def test_the_preset_is_identified(self) -> None:
        """TRL's, where a call asks for other constants."""
        case = next(case for case in cases_of(gates_of(self.program)[0]) if "mixed" in case.name)
        given = self.calls(case)
        trl = {"group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4}
        samples = of_oracle(self.program, [{**one, **trl} for one in given], normalise_then_sum)
        found = identify(self.program, [Sample(a, b.got) for a, b in zip(given, samples, strict=True)])
        assert (found.kind, "normalize_then_sum" in found.words) == ("convention", True), found
