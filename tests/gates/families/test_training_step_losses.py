"""The inputs of whole updates, and the losses that they are compared with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gates.families.trainer import steps
from gates.families.trainer.step_cases import CASES
from gates.families.trainer.step_inputs import EOS, inputs
from gates.families.trainer.step_losses import Rows, advantages, loss

SETTINGS: dict[str, Any] = {"loss": "dpo", "beta": 0.5, "label_smoothing": 0.0}


def case(trainer: str, **more: Any) -> dict[str, Any]:
    return inputs(np.random.default_rng(3), trainer=trainer, settings={}, micro=12, updates=2, **more)


def trial(trainer: str, rewards: list[float] | None, rows: int) -> Any:
    """Return a trial of so many rows of two tokens."""
    given = None if rewards is None else np.array(rewards, np.float32)
    shown = {"trainer": trainer, "rewards": given, "completions": [[1, 2]] * rows, "group_size": 2}
    return SimpleNamespace(inputs=shown, want=lambda op, **values: op.oracle(**values))


def log_probs(rows: int) -> Rows:
    """Return log-probs of rows of two tokens, with a policy that is not the reference."""
    policy = -np.arange(1.0, 2 * rows + 1).reshape(rows, 2) / 8
    whole = np.ones(policy.shape, dtype=bool)
    return Rows(policy, policy, np.full(policy.shape, -0.5), whole, whole)


class TestInputs:
    """What trainers are given."""

    def test_labels_of_kto_are_of_both_kinds(self) -> None:
        rewards = case("kto")["rewards"]
        assert sorted(set(rewards.tolist())) == [0.0, 1.0]
        assert rewards.sum() == len(rewards) / 2

    def test_scored_pairs_have_no_ties_and_both_orders(self) -> None:
        pairs = case("online_dpo")["rewards"].reshape(-1, 2)
        assert {tuple(pair) for pair in pairs.tolist()} == {(0.0, 1.0), (1.0, 0.0)}

    def test_rows_of_one_length_have_no_padding_and_no_end(self) -> None:
        made = case("grpo", equal_lengths=True)
        assert len({len(row) for row in made["prompts"]}) == len({len(row) for row in made["completions"]}) == 1
        assert not any(EOS in row for row in made["completions"])

    def test_one_prompt_is_one_group(self) -> None:
        made = case("grpo", prompts=1)
        assert len(made["prompts"]) == 1
        assert len(made["completions"]) == made["group_size"]
        assert len(set(made["rewards"].tolist())) > 1

    def test_names_of_cases_differ(self) -> None:
        assert len({one.name for one in CASES}) == len(CASES)


class TestScoredPairs:
    """Pairs whose rewards say which row is chosen."""

    def test_the_higher_reward_is_chosen(self) -> None:
        """By hand: -σ(-Δ) β / pairs for each token of the chosen row, with Δ = β((lp_c - ref_c) - (lp_r - ref_r))."""
        rows = log_probs(2)
        found = loss(trial("online_dpo", [0.0, 1.0], 2), rows, SETTINGS, 0.0).gradients[0]
        ratios = (rows.policy - rows.reference).sum(axis=1)
        slope = 0.5 / (1 + np.exp(0.5 * (ratios[1] - ratios[0])))
        np.testing.assert_allclose(found, [[slope, slope], [-slope, -slope]])

    def test_in_the_order_of_pairs_it_is_dpo(self) -> None:
        """The first row of each pair has the higher reward."""
        online = loss(trial("online_dpo", [1.0, 0.0, 3.0, 2.0], 4), log_probs(4), SETTINGS, 0.0)
        offline = loss(trial("dpo", None, 4), log_probs(4), SETTINGS, 0.0)
        np.testing.assert_array_equal(online.gradients[0], offline.gradients[0])
        assert online.loss == offline.loss


@pytest.mark.parametrize(("point", "slope"), [(0.0, 0.25), (2.0, np.e / (1 + np.e) ** 2)])
def test_kto_pushes_labels_from_its_reference_point(point: float, slope: float) -> None:
    """By hand: where policy and reference agree, λβσ'(βz0)/rows for each token; here β is 0.5 and λ 2 and 1."""
    rows = log_probs(2)
    rows = Rows(rows.policy, rows.policy, rows.policy, rows.mask, rows.scored)
    settings = {"beta": 0.5, "desirable_weight": 2.0, "undesirable_weight": 1.0}
    found = loss(trial("kto", [1.0, 0.0], 2), rows, settings, point).gradients[0]
    np.testing.assert_allclose(found, [[-2 * slope * 0.25] * 2, [slope * 0.25] * 2])


def test_labels_and_rejected_rows_count_as_advantages() -> None:
    assert advantages(trial("kto", [1.0, 0.0], 2), {}).tolist() == [1.0, -1.0]
    assert advantages(trial("online_dpo", [0.0, 1.0], 2), {}).tolist() == [-1.0, 1.0]
    assert advantages(trial("dpo", None, 2), {}).tolist() == [1.0, -1.0]


def test_a_loss_without_a_ratio_may_be_of_log_probs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: advantages are 1 and −1, so −mean(A) is 0, and −mean(A·log π) half the difference of the rows' means."""
    rows = log_probs(2)
    monkeypatch.setattr(steps, "_log_probs", lambda *_: (rows, None))
    on_policy = {"algorithm": "grpo", "ratio": "on-policy", "epsilon_low": 0.2, "epsilon_high": 0.2}
    centred = {"scale": "none", "baseline": "mean", "kl_ratio": "none"}
    made: Any = SimpleNamespace(settings=on_policy | centred, metrics={})
    (ratio, _), (score, _) = steps.expected_losses(trial("grpo", [2.0, 0.0], 2), made, 0)
    assert ratio == pytest.approx(0.0)
    assert score == pytest.approx((rows.policy[1].mean() - rows.policy[0].mean()) / 2)
