"""The algorithms by name: settings, advantages, filters, and losses worked out on paper."""

import ast
import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import corrections, protocol, registry

TRAINER = Path(__file__).resolve().parents[3] / "reference" / "trainer"
CONCRETE = {name.replace("-", "_") for name in registry.ALGORITHMS} | {"preference"}
ENGINE = [
    path
    for path in sorted(TRAINER.rglob("*.py"))
    if not {"algorithms", "preference"} & set(path.relative_to(TRAINER).parts) and path.name != "algorithm.py"
]


def rewards_of(values: list[float], group_size: int, **rest: Any) -> protocol.Rewards:
    scores = np.array(values, np.float64).reshape(len(values), -1)
    lengths = rest.pop("lengths", np.ones(len(values), np.int64))
    return protocol.Rewards(scores, np.ones(scores.shape[1]), group_size, np.asarray(lengths), **rest)


def loss_of(name: str, policy: list[list[float]], advantages: list[float], **rest: Any) -> tuple[protocol.Loss, Any]:
    """The loss of a whole step in one part, and its gradient; arrays as lists, every slot a token unless `mask` says."""
    options = rest.pop("settings", {})
    algorithm = registry.create(name, options)
    shape = np.shape(policy)
    mask = np.array(rest.pop("mask", np.ones(shape)), bool)
    groups = np.arange(shape[0]) // rest.pop("group_size", shape[0])
    whole = protocol.step_totals(mask.sum(axis=1), groups, micro_batches=1, max_length=rest.pop("max_length", shape[1]))
    given = {key: mx.array(np.array(value, np.float32)) for key, value in rest.items()}
    gains = mx.array(np.array(advantages, np.float32))

    def loss(x: mx.array) -> mx.array:
        return algorithm.loss(protocol.MicroBatch(x, mx.array(mask), gains, groups, **given), whole).value

    x = mx.array(np.array(policy, np.float32))
    parts = algorithm.loss(protocol.MicroBatch(x, mx.array(mask), gains, groups, **given), whole)
    return parts, np.array(mx.grad(loss)(x))


class TestRegistry:
    """Names and keys."""

    @pytest.mark.parametrize("name", registry.ALGORITHMS)
    def test_every_name_makes_an_algorithm_of_that_name(self, name: str) -> None:
        """Without settings an algorithm has its defaults, and calls itself by its name."""
        assert registry.create(name, {}).name == name

    @pytest.mark.parametrize(
        ("name", "given", "words"),
        [
            ("sappo", {}, ["'sappo'", "did you mean 'sapo'?"]),
            ("grpo", {"epsilon_hi": 0.2}, ["grpo.epsilon_hi", "did you mean 'epsilon_high'?"]),
            ("grpo", {"epsilon_low": -0.1}, ["grpo.epsilon_low is -0.1", "greater than or equal to 0"]),
            ("grpo", {"epsilon_low": "0.1"}, ["grpo.epsilon_low is '0.1'", "valid number"]),
            ("grpo", {"beta": math.nan}, ["grpo.beta is nan", "finite"]),
            ("grpo", {"delta": 1.1}, ["delta is 1.1", "> 1 + epsilon_high = 1.2"]),
            ("dapo", {"aggregation": "local"}, ["dapo.aggregation is 'local'", "'global'"]),
            ("dapo", {"overlong_limit": 4, "overlong_buffer": 5}, ["overlong_buffer is 5", "overlong_limit = 4"]),
            ("rloo", {"kl_in_reward": False}, ["kl_in_reward is False", "must be True"]),
            ("sapo", {"epsilon_low": 0.2}, ["sapo.epsilon_low is unknown", "must be one of aggregation"]),
            ("cispo", {"epsilon_low": 0.2, "epsilon_high": 0.5, "bound": "absolute"}, ["epsilon_low is 0.2", "0.5"]),
            ("reinforce", {"advantage_scale": "group"}, ["advantage_scale is 'group'", "'batch' or 'none'"]),
            ("reinforce++", {"kl_in_reward": False}, ["kl_in_reward is False", "must be True"]),
            ("gspo", {"correction": "tis"}, ["correction_level is 'token'", "'seq_sum'"]),
            ("grpo", {"entropy_share": 0.0}, ["grpo.entropy_share is 0.0", "greater than 0"]),
            ("grpo", {"correction_low": 3.0}, ["correction_low is 3.0", "correction_high = 2.0"]),
        ],
        ids=lambda value: value if isinstance(value, str) else "-".join(value) or "none",
    )
    def test_wrong_setting_is_reported_with_its_value(self, name: str, given: dict[str, Any], words: list[str]) -> None:
        """The message names the key, the value found and what it must be; for a typo the nearest name."""
        with pytest.raises(ValueError, match=r".") as caught:
            registry.create(name, given)
        assert all(word in str(caught.value) for word in words), str(caught.value)

    @pytest.mark.parametrize(
        ("name", "given", "needs"),
        [
            ("grpo", {}, (False, False, False)),
            ("grpo", {"beta": 0.1}, (True, False, False)),
            ("rloo", {"beta": 0.1}, (True, False, False)),
            ("dapo", {"entropy_share": 0.2}, (False, True, False)),
            ("dapo", {"entropy_bonus": 0.2}, (False, True, False)),
            ("cispo", {"correction": "mis"}, (False, False, True)),
        ],
        ids=["plain", "kl", "kl-in-reward", "mask", "bonus", "correction"],
    )
    def test_needs_follow_from_the_settings(self, name: str, given: dict[str, Any], needs: tuple[bool, ...]) -> None:
        """Without a KL no reference pass is asked for, and likewise entropies and sampling log-probs."""
        algorithm = registry.create(name, given)
        assert (algorithm.needs_reference, algorithm.needs_entropy, algorithm.needs_sampling) == needs

    @pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.stem)
    def test_the_engine_imports_no_algorithm(self, path: Path) -> None:
        """Outside algorithms/ and preference/ only the protocol and shared modules are imported; config/algorithm.py has the registry."""
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gates_reference.trainer"):
                names = {node.module.rpartition(".")[2], *(alias.name for alias in node.names)}
                assert not names & (CONCRETE | {"registry"}), (path.name, names & CONCRETE)


class TestAdvantages:
    """From rewards to advantages, and which groups are kept."""

    def test_rloo_takes_the_kl_first_and_leaves_the_completion_out(self) -> None:
        """Rewards 1, 2, 3 less 0.5 (2, 0, 0) are 0, 2, 3; the others' means are 2.5, 1.5, 1."""
        algorithm = registry.create("rloo", {"beta": 0.5})
        assert algorithm.advantages(rewards_of([1, 2, 3], 3), old_kl=np.array([2.0, 0, 0])).tolist() == [-2.5, 0.5, 2.0]
        with pytest.raises(ValueError, match="needs old_kl"):
            algorithm.advantages(rewards_of([1, 2, 3], 3))

    @pytest.mark.parametrize(
        ("convention", "kept"),
        [("accuracy", [True, False, False]), ("total", [True, True, False]), (None, [True] * 3), ("off", [True] * 3)],
        ids=str,
    )
    def test_dynamic_sampling(self, convention: str | None, kept: list[bool]) -> None:
        """Groups are kept whose accuracy, or whose total, differs; a NaN is not scored, one score is no difference."""
        values = np.array([[0, 1.0], [1, 1.0], [1, 0.0], [1, 1.0], [math.nan, math.nan], [1, 0.0]])
        rewards = protocol.Rewards(values, np.ones(2), 2, np.ones(6, np.int64), accuracy=0)
        assert registry.create("dapo", {"dynamic_sampling": convention}).keep(rewards).tolist() == kept

    def test_accuracy_must_be_named(self) -> None:
        """Without an accuracy column dynamic sampling by accuracy is an error that says what to do."""
        with pytest.raises(ValueError, match=r"Rewards\.accuracy is None; name one, or use 'total'"):
            registry.create("dapo", {"dynamic_sampling": "accuracy"}).keep(rewards_of([0, 1], 2))

    def test_the_penalty_enters_the_reward(self) -> None:
        """Equal rewards of lengths 6 and 10 differ by the penalty of -1, half of it each way from their mean."""
        algorithm = registry.create("dapo", {"overlong_limit": 10, "overlong_buffer": 4, "advantage_scale": "none"})
        assert algorithm.advantages(rewards_of([1, 1], 2, lengths=[6, 10])).tolist() == [0.5, -0.5]


class TestByHand:
    """Losses on paper; on-policy, so that every ratio is 1 and l = -A."""

    def test_the_parts_of_a_loss_add_up(self) -> None:
        """The value is the policy's part, the KL's and the bonus's: -A, beta k1, and -c times the mean entropy."""
        parts, _ = loss_of(
            "grpo",
            [[-1.0, -2.0]],
            [1],
            reference=[[-1.5, -2.5]],
            entropy=[[0.5, 1.5]],
            settings={"beta": 0.5, "kl_estimator": "k1", "entropy_bonus": 0.1},
        )
        assert [float(x) for x in (parts.policy, parts.kl, parts.entropy)] == pytest.approx([-1, 0.25, -0.1])
        assert float(parts.value) == pytest.approx(-0.85)

    def test_threshold_must_be_given_for_several_micro_batches(self) -> None:
        algorithm = registry.create("grpo", {"entropy_share": 0.5})
        x = mx.zeros((1, 2))
        scored = protocol.MicroBatch(x, x == 0, mx.ones(1), np.zeros(1, np.int64), entropy=x)
        whole = protocol.StepTotals(2, 4, np.array([4]), micro_batches=2, max_length=2)
        with pytest.raises(ValueError, match=r"2 micro-batches and StepTotals\.entropy_threshold"):
            algorithm.loss(scored, whole)

    def test_an_overflowing_weight_is_capped(self) -> None:
        """Old - sampling = 200 overflows float32 and is held at the cap."""
        found = corrections.weights(
            mx.array([[0.0]]),
            mx.array([[-200.0]]),
            mx.array([[True]]),
            correction="tis",
            level="token",
            c_min=None,
            c_max=2.0,
        )
        assert found.tolist() == [[2.0]]

    def test_the_window_of_trl_must_be_given(self) -> None:
        """The denominator of TRL's dapo is not in the step itself."""
        with pytest.raises(ValueError, match=r"StepTotals\.window_tokens is None"):
            loss_of("dapo", [[-1.0]], [1], settings={"aggregation": "trl"})

    def test_one_ratio_a_row_takes_one_advantage_a_row(self) -> None:
        with pytest.raises(ValueError, match="one ratio for a whole row"):
            loss_of("gspo", [[-1.0, -1.0]], [[1, 2]])


class TestPairs:
    """Sums that keep what their roundings lose."""

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=70))
    def test_a_sum_is_right_to_the_last_bit(self, values: list[float]) -> None:
        """The high part is within an ulp of the exact sum, and both parts together far below one."""
        row = mx.array(np.array([values], np.float32))
        high, low = double.row_sum(double.Double(row, mx.zeros_like(row)))
        exact = math.fsum(values)
        size = sum(map(abs, values))
        assert abs(float(high) + float(low) - exact) <= 2.0**-40 * size + 1e-40
        assert float(double.total(row)) == pytest.approx(exact, rel=2.0**-23, abs=2.0**-40 * size + 1e-40)

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=70))
    def test_a_mean_keeps_the_rounding_of_its_division(self, values: list[float]) -> None:
        """High and low of a mean add up to it far below a rounding."""
        row = mx.array(np.array([values], np.float32))
        high, low = double.row_mean(double.Double(row, mx.zeros_like(row)), mx.array([[float(len(values))]]))
        bound = 2.0**-38 * sum(map(abs, values)) / len(values) + 1e-38
        assert abs(float(high) + float(low) - math.fsum(values) / len(values)) <= bound

    def test_the_gradient_is_that_of_a_sum(self) -> None:
        """Each summand moves the sum by 1, the mean by 1/n."""
        row, count = mx.array([[1.0, 1e-8, 3.0]]), mx.array([[3.0]])
        zero = mx.zeros_like(row)
        assert mx.grad(lambda x: double.row_sum(double.Double(x, zero)).high.sum())(row).tolist() == [[1, 1, 1]]
        slope = mx.grad(lambda x: double.row_mean(double.Double(x, zero), count).high.sum())(row)
        assert np.array(slope) == pytest.approx(np.full((1, 3), 1 / 3))
