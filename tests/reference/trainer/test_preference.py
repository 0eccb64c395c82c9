"""DPO, Online DPO and Best-of-N of the trainer: the oracle's numbers, and the protocol that the loop relies on."""

import math
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from gates.subjects.mlx_trainer import preference as subject
from reference.oracle import preference as oracle
from reference.trainer.algorithms import protocol, registry
from reference.trainer.preference import margins

UNIT = 2.0**-23
LIMIT = 4.0
"""docs/definitions.md, "Accuracy": k = 4 for float32 data."""


def rewards_of(values: list[float], group_size: int = 2) -> protocol.Rewards:
    scores = np.array(values, np.float64)[:, None]
    return protocol.Rewards(scores, np.ones(1), group_size, np.ones(len(values), np.int64))


def run(name: str, policy: Any, advantages: Any, *, split: int = 0, reference: Any = None, **settings: Any) -> Any:
    """The loss and gradient of a step whose rows are pairs of single tokens, in parts of `split` rows."""
    algorithm = registry.create(name, settings)
    x = mx.array(np.array(policy, np.float32)[:, None])
    base = None if reference is None else mx.array(np.array(reference, np.float32)[:, None])
    groups = np.arange(len(policy)) // 2
    parts = -(-len(policy) // split) if split else 1
    whole = protocol.step_totals(np.ones(len(policy), np.int64), groups, micro_batches=parts, max_length=1)

    def loss(x: mx.array) -> mx.array:
        total = mx.zeros(())
        for start in range(0, len(policy), split or len(policy)):
            rows = slice(start, start + (split or len(policy)))
            part = protocol.MicroBatch(
                x[rows],
                mx.ones(x[rows].shape) > 0,
                mx.array(np.array(advantages, np.float32)[rows]),
                groups[rows],
                reference=None if base is None else base[rows],
            )
            total = total + algorithm.loss(part, whole).value
        return total

    value, gradient = mx.value_and_grad(loss)(x)
    return float(value), np.array(gradient)[:, 0].tolist()


class TestByHand:
    """Pairs of single tokens on paper."""

    def test_sigmoid(self) -> None:
        """Ratios 1 and -0.5 with beta 2: Delta = 3, loss log(1 + e^-3), slopes -+2 sigma(-3)."""
        value, gradient = run("dpo", [-0.5, -2.0], [1, -1], reference=[-1.5, -1.5], beta=2.0)
        slope = 2 / (1 + math.exp(3))
        assert value == pytest.approx(math.log(1 + math.exp(-3)), rel=1e-6)
        assert gradient == pytest.approx([-slope, slope], rel=1e-6)

    def test_the_sign_of_the_advantage_says_which_is_chosen(self) -> None:
        """With the signs exchanged the same rows have Delta = -3."""
        value, gradient = run("online_dpo", [-0.5, -2.0], [-1, 1], reference=[-1.5, -1.5], beta=2.0)
        assert value == pytest.approx(math.log(1 + math.exp(3)), rel=1e-6)
        assert gradient[0] > 0 > gradient[1]

    def test_hinge_and_ipo(self) -> None:
        """At Delta = 0.75 the hinge is 0.25; IPO with beta 0.5 aims at x = 1, so x = 1.5 costs 0.25."""
        given = {"reference": [-1.5, -1.5], "beta": 0.5}
        assert run("dpo", [-0.5, -2.0], [1, -1], loss="hinge", **given) == (0.25, [-0.5, 0.5])
        assert run("dpo", [-0.5, -2.0], [1, -1], loss="ipo", **given) == (0.25, [1.0, -1.0])

    def test_reference_free_needs_none(self) -> None:
        """Delta is beta (policy_c - policy_r), and no reference pass is asked for."""
        assert not registry.create("dpo", {"reference_free": True}).needs_reference
        assert registry.create("dpo", {}).needs_reference
        value, _ = run("dpo", [-0.5, -2.0], [1, -1], reference_free=True, beta=1.0)
        assert value == pytest.approx(math.log(1 + math.exp(-1.5)), rel=1e-6)

    def test_a_pair_without_preference_adds_nothing_and_counts(self) -> None:
        """Two pairs, the second 0 and 0: half the loss of the first alone, no gradient in the second."""
        alone, _ = run("dpo", [-0.5, -2.0], [1, -1], reference_free=True)
        both, gradient = run("dpo", [-0.5, -2.0, -1.0, -3.0], [1, -1, 0, 0], reference_free=True)
        assert both == pytest.approx(alone / 2, rel=1e-7)
        assert gradient[2:] == [0, 0]

    def test_parts_add_up(self) -> None:
        """Three pairs in parts of two and one pair give the step's loss and gradient."""
        policy, signs = [-0.5, -2.0, -1.0, -3.0, -2.5, -0.1], [1, -1, -1, 1, 1, -1]
        whole = run("dpo", policy, signs, reference_free=True)
        parts = run("dpo", policy, signs, reference_free=True, split=4)
        assert parts[0] == pytest.approx(whole[0], rel=2 * UNIT)
        assert parts[1] == whole[1]

    def test_best_of_n_trains_on_the_winner(self) -> None:
        """Of two prompts with winners at -1 and -3 the loss is 2, the gradient -1/2 in both and 0 in the others."""
        assert run("best_of_n", [-1.0, -9.0, -8.0, -3.0], [1, 0, 0, 1]) == (2.0, [-0.5, 0, 0, -0.5])


class TestProtocol:
    """What the loop asks before and after scoring."""

    def test_online_dpo_prefers_the_higher_and_the_first_of_a_tie(self) -> None:
        """Rewards 1 > 0, 0 < 1, 1 = 1, and one that is not scored, whose pair is not kept."""
        rewards = rewards_of([1, 0, 0, 1, 1, 1, math.nan, 1])
        algorithm = registry.create("online_dpo", {})
        assert algorithm.advantages(rewards).tolist() == [1, -1, -1, 1, 1, -1, 0, 0]
        assert algorithm.keep(rewards).tolist() == [True, True, True, False]

    def test_best_of_n_marks_the_winner(self) -> None:
        """The highest score that is no NaN, the first of several."""
        rewards = rewards_of([1, 3, 3, math.nan, -1, -2], 3)
        assert registry.create("best_of_n", {}).advantages(rewards).tolist() == [0, 1, 0, 0, 1, 0]

    def test_offline_pairs_come_chosen_first(self) -> None:
        """The signs are +1 and -1 in turn."""
        assert margins.offline(2).tolist() == [1, -1, 1, -1]

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (
                lambda: registry.create("online_dpo", {}).advantages(rewards_of([1, 2, 3], 3)),
                "group_size is 3, must be 2",
            ),
            (lambda: registry.create("best_of_n", {}).advantages(rewards_of([math.nan] * 2)), "group 0 are all NaN"),
            (lambda: run("dpo", [-1.0, -2.0], [1, 1], reference_free=True), r"advantages \[1.0, 1.0\]"),
            (lambda: run("dpo", [-1.0, -2.0, -3.0], [1, -1, 1], reference_free=True), "never split"),
            (lambda: run("dpo", [-1.0, -2.0], [1, -1]), "reference is None"),
            (lambda: registry.create("dpo", {"label_smoothing": 0.5}), "less than 0.5"),
            (lambda: registry.create("dpo", {"loss": "hinge", "label_smoothing": 0.1}), "must be 0 for loss 'hinge'"),
            (lambda: registry.create("dpo", {"ipo_lengths": "mean"}), "must be 'sum' for loss 'sigmoid'"),
        ],
        ids=[
            "group-of-three",
            "all-nan",
            "both-chosen",
            "odd",
            "no-reference",
            "smoothing",
            "inert-smoothing",
            "inert-lengths",
        ],
    )
    def test_errors_say_what_is_wrong(self, call: Any, words: str) -> None:
        """Each message names the value that was found."""
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize(
    "constants",
    [
        {"loss": "dpo", "beta": 0.1, "label_smoothing": 0.0},
        {"loss": "dpo", "beta": 0.5, "label_smoothing": 0.25},
        {"loss": "hinge", "beta": 0.5},
        {"loss": "ipo", "beta": 0.5, "lengths": "sum"},
        {"loss": "ipo", "beta": 0.5, "lengths": "mean"},
    ],
    ids=["dpo", "smoothed", "hinge", "ipo-sum", "ipo-mean"],
)
@pytest.mark.parametrize("spread", [0.01, 0.5, 6.0])
def test_loss_and_gradient_are_the_oracles(constants: dict[str, Any], spread: float) -> None:
    """Over random rows value and gradient are the float64 oracle's to 4 roundings of their scale; masked NaN is inert."""
    rng = np.random.default_rng(int(100 * spread))
    mask = np.arange(40) < np.array([40, 1, 7, 3, 31, 24, 12, 40])[:, None]
    mask[:, 0] = False  # a prompt token
    mask[1, 1] = True
    policy = np.where(mask, rng.normal(-2, 1, mask.shape), math.nan).astype(np.float32)
    reference = (policy + rng.normal(0, spread, policy.shape)).astype(np.float32)
    want = oracle.preference_loss(policy, reference=reference, mask=mask, **constants)
    got = subject.preference_loss(policy=policy, reference=reference, mask=mask, **constants)
    assert abs(got["loss"] - want.loss) <= LIMIT * UNIT * want.loss_scale
    assert (np.abs(got["gradient"] - want.gradient) <= LIMIT * UNIT * want.gradient_scale + 1e-38).all()


@pytest.mark.parametrize("margin", [-1e4, -100.0, -20.0, -1e-4, 0.0, 1e-4, 20.0, 100.0, 1e4], ids=str)
def test_log_sigmoid_neither_overflows_nor_cancels(margin: float) -> None:
    """The value is within 4 roundings of float64's, or below float32's normal range, and its slope is -sigma(-x)."""
    x = mx.array([margin])
    value = float(margins.minus_log_sigmoid(x)[0])
    slope = float(mx.grad(lambda x: margins.minus_log_sigmoid(x).sum())(x)[0])
    exact = float(np.float32(margin))
    small = math.exp(-abs(exact))
    assert value == pytest.approx(max(-exact, 0.0) + math.log1p(small), rel=4 * UNIT, abs=1e-37)
    assert slope == pytest.approx(-(small if exact > 0 else 1.0) / (1.0 + small), rel=4 * UNIT, abs=1e-37)
