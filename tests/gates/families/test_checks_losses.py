"""The gates of losses and ratios on broken subjects, and the rule for elements at a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broken import broken, verdicts

from gates.families import arrays
from gates.families.loss import calls
from gates.families.loss.branches import on_a_branch
from gates.model import FAILURES
from gates.registry import load
from gates_reference.oracle.losses import PolicyLoss, policy_loss


@pytest.mark.parametrize(
    ("gate", "op", "damage", "words"),
    [
        (
            "advantages.normalise-then-sum",
            "normalise_then_sum",
            'found["advantages"] = found["advantages"][:-1]',
            "shape",
        ),
        ("weights.matches-definition", "importance_weights", 'found["weights"] = found["weights"][..., None]', "shape"),
        ("ratio.matches-definition", "importance_ratio", 'found["ratio"] = found["ratio"][..., None]', "shape"),
        ("ratio.matches-definition", "importance_ratio", 'found["ratio"] = found["ratio"] * np.nan', "is nan"),
        ("statistics.match-definition", "ratio_statistics", 'del found["seq_sum_k3"]', "must have 'seq_sum_k3'"),
        ("statistics.match-definition", "ratio_statistics", 'found["clipped_low"] = 0.5', "clipped"),
        ("statistics.match-definition", "ratio_statistics", 'found["outside_low"] = np.nan', "outside_low"),
        ("loss.full-precision", "policy_loss", 'found["loss"] = np.nan', "loss error"),
        (
            "loss.truncated-completions.are-masked",
            "loss_of_completions",
            'found["gradient"] = found["gradient"] * np.nan',
            "gradient error",
        ),
        ("trainer.lora-dropout.matches-definition", "lora_linear", 'found["y"] = found["y"][:, :1]', "output error"),
        ("trainer.lora-dropout.matches-definition", "lora_linear", 'found["kept"] = found["kept"][:1]', "like x"),
        ("loss.gmpo.matches-definition", "policy_loss", 'found["gradient"] = found["gradient"] * 0', "gradient error"),
    ],
)
def test_a_broken_answer_fails(tmp_path: Path, gate: str, op: str, damage: str, words: str) -> None:
    """Wrong shapes, NaN, missing names and dead gradients are the subject's failure, with the reason."""
    found = verdicts(tmp_path, broken(op, damage), gate)
    failed = [verdict for verdict in found if verdict.status in FAILURES]
    assert failed, {verdict.status for verdict in found}
    assert {verdict.status for verdict in found} <= {*FAILURES, "unsupported"}
    assert all(words in verdict.reason for verdict in failed), {verdict.reason for verdict in failed}


def at_the_bound() -> PolicyLoss:
    """Two good tokens: one float32 ulp beyond 1.25, where the definition's gradient is 0 and the other -1, and at 1."""
    d = np.log(1.25) + 2.0**-23
    return policy_loss(
        np.array([[d, 0.0]]),
        old=np.zeros((1, 2)),
        reference=None,
        advantages=[1.0],
        mask=[[1, 1]],
        algorithm="grpo",
        epsilon_low=0.25,
        epsilon_high=0.25,
        delta=None,
        beta=0.0,
        kl_ratio=None,
        branch_dtype="float32",
    )


class TestBranches:
    """At a bound either branch is right, and nothing else is."""

    def test_the_other_branch_is_taken_for_the_definitions(self) -> None:
        """Both gradients come out as the definition's; what lies between them does not."""
        wanted = at_the_bound()
        assert wanted.near_branch.tolist() == [[True, False]]
        for gradient in (wanted.gradient, wanted.gradient_other):
            _, found = on_a_branch(wanted, wanted.loss, gradient)
            np.testing.assert_allclose(found, wanted.gradient, atol=1e-16)
        between = (wanted.gradient + wanted.gradient_other) / 2
        _, found = on_a_branch(wanted, wanted.loss, between)
        assert np.abs(found - wanted.gradient).max() > 0.1

    def test_the_loss_may_differ_by_the_slack_only(self) -> None:
        """A loss within the slack is the definition's; beyond it what is left over counts, and NaN stays NaN."""
        wanted = at_the_bound()
        assert 0.0 < wanted.branch_slack < 1e-6
        for off, left in ((0.5, 0.0), (-0.5, 0.0), (3.0, 2.0), (-3.0, -2.0)):
            got = {"loss": wanted.loss + off * wanted.branch_slack, "gradient": wanted.gradient}
            found, _ = on_a_branch(wanted, got["loss"], got["gradient"])
            assert found - wanted.loss == pytest.approx(left * wanted.branch_slack, abs=1e-15)
        assert np.isnan(on_a_branch(wanted, np.nan, wanted.gradient)[0])


class TestCases:
    """What a case asks is what its name says."""

    def test_flat_rows_are_the_masked_tokens(self) -> None:
        """A flat case carries the tokens of the masked case of the same seed, and nothing of its padding."""
        rng = [np.random.default_rng(5) for _ in range(2)]
        masked = calls.make(rng[0], "grpo", {"by_token": True}, {}, "mask", "token")
        flat = calls.make(rng[1], "grpo", {"by_token": True}, {}, "flat", "token")
        for name in ("policy", "old", "advantages", "weights"):
            np.testing.assert_array_equal(flat[name], masked[name][masked["mask"]])
        assert flat["lengths"].tolist() == masked["mask"].sum(axis=1).tolist()
        assert calls.valid(flat).all()
        assert calls.rows_of(flat).tolist() == np.repeat(np.arange(8), flat["lengths"]).tolist()

    def test_scalars_are_rounded_once(self) -> None:
        """The oracle gets 0.2 as float32 has it, and counts and conventions as they are."""
        given = calls.make(np.random.default_rng(0), "grpo", {}, {"beta": 0.1})
        rounded = calls.rounded(given)
        assert rounded["epsilon_low"] == float(np.float32(0.2))
        assert rounded["algorithm"] == "grpo"
        assert rounded["delta"] is None


DECLARING = """\
from gates.subjects.numpy_baseline import subject as whole

OPS = {{"policy_loss": whole.OPS["policy_loss"]}}
CONVENTIONS = {{"policy_loss": {conventions!r}}}
"""


class TestDeclared:
    """A library is asked what it declares; the reason names the word for what it is not asked."""

    def judged(
        self, folder: Path, gate: str = "loss.grpo.matches-definition", **conventions: tuple[Any, ...]
    ) -> set[str]:
        found = verdicts(folder, DECLARING.format(conventions=conventions), gate, quick=False)
        assert {verdict.status for verdict in found} <= {"correct", "unsupported"}
        return {verdict.case for verdict in found if verdict.status == "correct"}

    @pytest.mark.parametrize(
        ("conventions", "asked", "not_asked"),
        [
            ({"ratio": ("on-policy",)}, {"on-policy", "on-policy-kl", "ragged", "kl"}, set()),
            ({"rows": ("mask",)}, {"ragged", "kl", "holes", "flat-rows", "row-mask", "no-mask"}, {"empty-flat-row"}),
            ({"empty_rows": (False,)}, {"ragged", "flat-rows"}, {"empty-row", "empty-flat-row"}),
            ({"kl_estimator": ("k1",)}, {"ragged", "k1-none", "k1-token", "kl", "k2-none"}, set()),
            ({"advantages": ("row",)}, {"ragged", "token-weights", "token-advantages"}, set()),
            ({"weights": (False,)}, {"ragged", "kl"}, {"row-weights", "token-weights", "kl-and-weights"}),
            ({"kl_clamp": (None, 10.0)}, {"kl", "kl-clamped"}, set()),
            ({}, {"kl"}, {"kl-clamped"}),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
    )
    def test_only_what_is_declared_is_asked(
        self, tmp_path: Path, conventions: dict[str, tuple[Any, ...]], asked: set[str], not_asked: set[str]
    ) -> None:
        """A case with another choice is asked with the declared one, or is unsupported; none fails."""
        found = self.judged(tmp_path, **conventions)
        assert asked <= found
        assert not not_asked & found

    def test_a_clip_of_rloo_is_asked_of_who_declares_it(self, tmp_path: Path) -> None:
        """And the plain loss of who has that."""
        gate = "loss.rloo.matches-definition"
        assert "clipped" not in self.judged(tmp_path, gate)
        assert self.judged(tmp_path, gate, clipped=(True,)) == {"clipped"}

    def test_rewards_in_advantages_inside(self, tmp_path: Path) -> None:
        """Nothing is asked, and the sentence names the word."""
        code = DECLARING.format(conventions={"advantages": ("inside",)})
        found = verdicts(tmp_path, code, "loss.grpo.matches-definition")
        assert {verdict.status for verdict in found} == {"unsupported"}
        assert "has advantages 'inside', not 'row'" in found[0].reason

    def test_a_law_of_two_conventions_needs_both(self, tmp_path: Path) -> None:
        """`old` given and left out: neither kind of library is asked alone."""
        gate = "loss.old-is-a-constant"
        assert not self.judged(tmp_path, gate, ratio=("on-policy",))
        assert not self.judged(tmp_path, gate, ratio=("off-policy",))
        assert self.judged(tmp_path, gate, ratio=("on-policy", "off-policy"))


class TestComposedCases:
    """A case that is asked with another aggregation is otherwise the same case."""

    @pytest.mark.parametrize("name", ["gspo-ordinary", "gspo-nan", "sapo-nan"])
    def test_masked_slots_stay_poisoned(self, name: str) -> None:
        """The law about padding reads what it puts there, and keeps its level."""
        preset = next(one for one in load().gates["loss.padding-is-inert"].cases if one.name == name)
        assert preset.compose is not None
        composed = preset.compose({"aggregation": "token-mean"})
        assert composed.level == preset.level
        assert composed.make(np.random.default_rng(0))["poison"] == name.partition("-")[2]

    def test_parts_stay_parts(self) -> None:
        """Micro-batches of a cap that is read otherwise are the same micro-batches."""
        whole = next(case for case in load().gates["trainer.micro-batches.add-up"].cases if case.name == "cispo-uneven")
        assert whole.compose is not None
        composed = whole.compose({"cispo_bound": "absolute"})
        assert composed.conventions["parts"] == whole.conventions["parts"]
        assert composed.make(np.random.default_rng(0))["parts"] == whole.make(np.random.default_rng(0))["parts"]

    def test_rare_input_stays_rare(self) -> None:
        """A steep gate far from the policy is fragile to fail, whatever the aggregation."""
        steep = next(
            one for one in load().gates["loss.sapo.matches-definition"].cases if one.name == "found-steep-gate"
        )
        assert steep.compose is not None
        assert steep.compose({"aggregation": "token-mean"}).level == steep.level == "robustness"


def test_holes_leave_a_token_in_each_row() -> None:
    """A row without tokens is the question of another case, where a failure is fragile."""
    for seed in range(300):
        mask = arrays.loss_inputs(np.random.default_rng(seed), holes=True)["mask"]
        assert mask.any(axis=1).all()
