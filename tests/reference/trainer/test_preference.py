"""DPO, Online DPO and Best-of-N of the trainer: the oracle's numbers, and the protocol that the loop relies on."""

import math
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from gates_reference.trainer.algorithms import protocol, registry
from gates_reference.trainer.preference import margins

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


class TestProtocol:
    """What the loop asks before and after scoring."""

    def test_a_pair_that_is_not_scored_is_not_kept(self) -> None:
        """Equal rewards are a preference, for the first; a NaN is none."""
        kept = registry.create("online_dpo", {}).keep(rewards_of([1, 0, 0, 1, 1, 1, math.nan, 1]))
        assert kept.tolist() == [True, True, True, False]

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
