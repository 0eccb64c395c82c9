"""The gates of laws on broken subjects: a law is broken by what depends on the case, and constants obey none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broken import broken, verdicts

from gates.families.advantages.gates import laws
from gates.families.loss import laws as loss_laws
from gates.families.loss.gates import invariance, reductions
from gates.families.trainer.gates import configuration
from gates.registry import load
from gates.run import inputs
from gates_reference.oracle import advantages, losses

ZERO = 'found["loss"], found["gradient"] = 0.0, found["gradient"] * 0'
LOSS_LAWS = (
    "loss.reductions.hold",
    "loss.order-does-not-matter",
    "loss.copies-do-not-matter",
    "loss.wider-padding-does-not-matter",
)


@pytest.mark.parametrize(
    ("gate", "op", "damage", "words"),
    [
        *((gate, "policy_loss", ZERO, "where the law is broken") for gate in LOSS_LAWS),
        ("loss.splits-add-up", "policy_loss", ZERO, "weighed alike"),
        *((gate, "policy_loss", 'found["gradient"] = found["gradient"] * np.nan', "not finite") for gate in LOSS_LAWS),
        ("loss.splits-add-up", "policy_loss", 'found["loss"] = np.nan', "not finite"),
        (
            "advantages.laws-hold",
            "group_advantages",
            'found["advantages"] = found["advantages"] * 0',
            "change of a group",
        ),
        (
            "advantages.laws-hold",
            "group_advantages",
            'found["advantages"] = found["advantages"] + np.float32(1)',
            "is ",
        ),
        (
            "advantages.laws-hold",
            "group_advantages",
            'found["advantages"] = found["advantages"] * np.nan',
            "not finite",
        ),
        ("loss.old-is-a-constant", "policy_loss", ZERO, "where the law is broken"),
        ("loss.settings-act", "policy_loss", ZERO, "as a share"),
        (
            "loss.settings-act",
            "policy_loss",
            'broken.calls = getattr(broken, "calls", 0) + 1; found["gradient"] *= np.float32(1 + 1e-3 * broken.calls)',
            "change without",
        ),
        ("loss.extreme-ratios-stay-numbers", "policy_loss", 'found["loss"] = np.nan', "NaN among"),
        ("loss.extreme-ratios-stay-numbers", "policy_loss", 'found["gradient"] *= np.float32(1.01)', "error of finite"),
        (
            "advantages.normalise-then-sum.ignores-units",
            "normalise_then_sum",
            'found["advantages"] = found["advantages"] * 0',
            "by other weights",
        ),
    ],
)
def test_a_broken_answer_fails(tmp_path: Path, gate: str, op: str, damage: str, words: str) -> None:
    """Zeros fail by the control, NaN and offsets by the law, in every quick case."""
    found = verdicts(tmp_path, broken(op, damage), gate)
    grade = "hardening" if gate == "loss.extreme-ratios-stay-numbers" else "wrong"
    assert {verdict.status for verdict in found} == {grade}
    assert all(words in verdict.reason for verdict in found), {verdict.reason for verdict in found}


EARLY = """
    big = np.abs(found["gradient"]) > np.finfo(np.float32).max / 16
    found["gradient"] = np.where(big, {sign} * np.copysign(np.float32(np.inf), found["gradient"]), found["gradient"])"""


@pytest.mark.parametrize(("sign", "status"), [("1", "correct"), ("-1", "hardening")])
def test_an_element_may_overflow_on_its_way(tmp_path: Path, sign: str, status: str) -> None:
    """At this seed e^(1000/11) / 8 is an element that float32 holds and its ratio e^(1000/11) is not: ∞ is right, −∞ is not."""
    code = broken("policy_loss", EARLY.format(sign=sign))
    case = "luspo-kl-beyond-float64-loss-float32"
    found = verdicts(tmp_path, code, "loss.extreme-ratios-stay-numbers", case, seed=1, quick=False)
    assert [verdict.status for verdict in found] == [status], found


class TestLaw:
    """Two calls and how the second's results become the first's."""

    def test_take_and_factor(self) -> None:
        """Two rows swapped and copied: the swapped half of the copies' gradient is the original's."""
        rng = np.random.default_rng(3)
        made: Any = invariance._copied(rng, "grpo", {})
        law = loss_laws.law_of(made)
        sides = [losses.policy_loss(**side) for side in (law.left, law.right)]
        found = loss_laws._of_oracle(law, sides)
        assert found.apart(with_loss=True) < 1e-6
        np.testing.assert_allclose(sides[1].gradient[:8] * 2, sides[0].gradient, rtol=1e-12)
        other = loss_laws._of_oracle(loss_laws.Law(law.left, law.right, law.take), sides)
        assert other.apart(with_loss=True) > 1e4

    def test_what_is_not_a_number_is_not_near(self) -> None:
        """A NaN on one side is no small distance."""
        found = loss_laws.Sides((0.0, 0.0), (np.zeros(2), np.array([0.0, np.nan])), 1.0, 1.0)
        assert not found.apart(with_loss=True) <= 1e9

    @pytest.mark.parametrize("case", list(reductions._cases()), ids=lambda case: case.name)
    def test_the_definition_obeys_its_reductions(self, case: Any) -> None:
        """Each pair agrees in the oracle, and its broken form does not, for another seed than the gate's."""
        made: Any = inputs.inputs(load().gates["loss.reductions.hold"], case, 99)
        apart = []
        for word in ("", "broken"):
            law = loss_laws.law_of(made, word)
            sides = [losses.policy_loss(**side) for side in (law.left, law.right)]
            apart.append(loss_laws._of_oracle(law, sides).apart(with_loss=law.with_loss))
        assert apart[0] < 0.5
        assert apart[1] > 1e3


class TestRobustZ:
    """How far a step of a run stands out."""

    def test_by_hand(self) -> None:
        """Of 1 to 7 the median is 4 and the MAD 2: 34 in the place of 7 is 30 / 2.9652 above, and moves neither."""
        values = np.array([1.0, 2, 3, 4, 5, 6, 34])
        assert configuration.robust_z(values)[-1] == pytest.approx(30 / (1.4826 * 2))
        assert configuration.robust_z(values)[0] == pytest.approx(-3 / (1.4826 * 2))

    def test_the_limit_is_that_of_normal_values(self) -> None:
        """Of 200,000 runs of normal values, some 20 pass the limit: 4 standard deviations of a count of 20 either way."""
        values = np.random.default_rng(0).normal(size=(200_000, configuration.LENGTH))
        largest = [configuration.robust_z(run).max() for run in values[:200]]
        off = values - np.median(values, axis=1, keepdims=True)
        scores = (off / (1.4826 * np.median(np.abs(off), axis=1, keepdims=True))).max(axis=1)
        assert scores[:200].tolist() == pytest.approx(largest)
        assert 2 <= np.sum(scores > configuration.SPIKE) <= 38

    def test_sections_are_merged(self) -> None:
        """A change keeps the other keys of its section and the other sections."""
        merged = configuration._merged(
            {"loop": {"steps": 3, "iterations": 2}, "data": {"seed": 1}}, {"loop": {"steps": 2}}
        )
        assert merged == {"loop": {"steps": 2, "iterations": 2}, "data": {"seed": 1}}


class TestAdvantageLaws:
    """The laws on numbers worked out by hand."""

    def test_two_samples(self) -> None:
        """Rewards 1.5 and 0.5: leave-one-out ±1, the z-score ±1/√2, so the factor is 1/√2."""
        left = {**laws.Z_SCORE, "rewards": np.array([1.5, 0.5]), "group_size": 2}
        made = laws._two_samples(left, np.random.default_rng(0))
        np.testing.assert_allclose(made["factor"], [2**-0.5, 2**-0.5])
        np.testing.assert_allclose(advantages.group_advantages(**made["right"]), [1.0, -1.0])
        np.testing.assert_allclose(advantages.group_advantages(**left), [2**-0.5, -(2**-0.5)])

    def test_epsilon_has_the_unit_of_the_rewards(self) -> None:
        """Sixteen times the rewards: sixteen times an ε that is added, 256 times one under the root."""
        assert laws._scaled_eps({"eps": 0.5, "eps_mode": "add"}) == 8.0
        assert laws._scaled_eps({"eps": 0.5, "eps_mode": "inside"}) == 128.0
        assert laws._scaled_eps({"eps": None, "eps_mode": None}) is None
