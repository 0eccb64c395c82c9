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

from gates.subjects.mlx_trainer import loss as subject
from reference.oracle import advantages as oracle_advantages
from reference.oracle import losses
from reference.trainer import double
from reference.trainer.algorithms import corrections, dapo, entropy, protocol, ratio, registry

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
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reference.trainer"):
                names = {node.module.rpartition(".")[2], *(alias.name for alias in node.names)}
                assert not names & (CONCRETE | {"registry"}), (path.name, names & CONCRETE)


class TestAdvantages:
    """From rewards to advantages, and which groups are kept."""

    def test_z_scores_of_groups(self) -> None:
        """Rewards 0, 1 have mean 0.5 and deviation sqrt(0.5) (ddof 1): -+0.5 / (0.7071 + 1e-4); an equal group gives 0."""
        found = registry.create("grpo", {}).advantages(rewards_of([0, 1, 3, 3], 2))
        assert found.dtype == np.float32
        assert found == pytest.approx([-0.5 / (math.sqrt(0.5) + 1e-4), 0.5 / (math.sqrt(0.5) + 1e-4), 0, 0], rel=1e-6)

    def test_dr_grpo_divides_by_nothing(self) -> None:
        """Rewards 0, 4 give -2 and 2."""
        assert registry.create("dr_grpo", {}).advantages(rewards_of([0, 4], 2)).tolist() == [-2, 2]

    def test_rloo_takes_the_kl_first_and_leaves_the_completion_out(self) -> None:
        """Rewards 1, 2, 3 less 0.5 (2, 0, 0) are 0, 2, 3; the others' means are 2.5, 1.5, 1."""
        algorithm = registry.create("rloo", {"beta": 0.5})
        assert algorithm.advantages(rewards_of([1, 2, 3], 3), old_kl=np.array([2.0, 0, 0])).tolist() == [-2.5, 0.5, 2.0]
        with pytest.raises(ValueError, match="needs old_kl"):
            algorithm.advantages(rewards_of([1, 2, 3], 3))

    def test_normalise_then_sum_is_the_oracles(self) -> None:
        """GDPO normalises each function in its group first."""
        rng = np.random.default_rng(3)
        rewards = protocol.Rewards(rng.normal(size=(6, 2)), np.array([1.0, 0.5]), 3, np.ones(6, np.int64))
        found = registry.create("grpo", {"advantage": "normalise-then-sum"}).advantages(rewards)
        want = oracle_advantages.normalise_then_sum(
            rewards.values, rewards.weights, 3, group_ddof=1, group_eps=1e-4, batch_ddof=1, batch_eps=1e-4
        )
        assert found == pytest.approx(want, rel=1e-6)

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

    def test_overlong_penalty(self) -> None:
        """With L_max 10 and L_c 4: 0 up to 6 tokens, -1/4 a token from there, -1 from 10 on."""
        assert dapo.overlong(np.array([1, 6, 7, 9, 10, 11]), 10, 4).tolist() == [0, 0, -0.25, -0.75, -1, -1]

    def test_the_penalty_enters_the_reward(self) -> None:
        """Equal rewards of lengths 6 and 10 differ by the penalty of -1, half of it each way from their mean."""
        algorithm = registry.create("dapo", {"overlong_limit": 10, "overlong_buffer": 4, "advantage_scale": "none"})
        assert algorithm.advantages(rewards_of([1, 1], 2, lengths=[6, 10])).tolist() == [0.5, -0.5]


class TestByHand:
    """Losses on paper; on-policy, so that every ratio is 1 and l = -A."""

    RAGGED = [[1, 1, 1], [1, 0, 0]]  # noqa: RUF012  two rows of three tokens and one

    @pytest.mark.parametrize(
        ("name", "options", "want"),
        [
            ("grpo", {}, 0.5),  # (-1 + 2) / 2
            ("dr_grpo", {}, -0.125),  # (-1·3 + 2·1) / (2·4)
            ("dapo", {}, -0.25),  # (-3 + 2) / 4 tokens
            ("dapo", {"aggregation": "group"}, 0.5),  # two prompts: (-3/3 + 2/1) / 2
            ("bnpo-trl", {}, -0.25),
            ("gspo", {}, 0.5),
            ("rloo", {}, 0.5),
            ("sapo", {}, 0.5 * (-2 + 2 * 2 / 1.05)),  # (4/τ)σ(0) = 2/τ
            ("gmpo", {}, 0.5),
            ("luspo", {}, -0.5),  # (-1·3 + 2·1) / 2
            ("cispo", {}, -2.0),  # -(1·(-1)·3 + (-2)·(-5.5)) / 4
        ],
        ids=str,
    )
    def test_on_policy_values(self, name: str, options: dict[str, Any], want: float) -> None:
        """A row of three tokens with A = 1 and one of one token with A = -2, by each aggregation."""
        policy = [[-1, -1, -1], [-5.5, 0, 0]]
        parts, _ = loss_of(name, policy, [1, -2], mask=self.RAGGED, settings=options, group_size=1, max_length=4)
        assert float(parts.value) == pytest.approx(want, rel=1e-6)

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

    def test_top_entropy_keeps_denominator_and_kl(self) -> None:
        """Of four tokens the two of highest entropy train: half the loss, half the gradient, the whole KL."""
        given = {"entropy": [[0.1, 0.9, 0.2, 0.8]], "reference": [[-1.5] * 4]}
        options = {"beta": 0.5, "kl_estimator": "k1"}
        whole, _ = loss_of("grpo", [[-1.0] * 4], [1], settings=options, **given)
        half, gradient = loss_of("grpo", [[-1.0] * 4], [1], settings=options | {"entropy_share": 0.5}, **given)
        assert (float(whole.policy), float(half.policy)) == (-1, -0.5)
        assert float(half.kl) == float(whole.kl)
        assert gradient[0] == pytest.approx([0.125, -0.125, 0.125, -0.125])  # 0.5/4 of the KL, -1/4 where it trains

    def test_threshold_must_be_given_for_several_micro_batches(self) -> None:
        """With several parts the threshold must be given, and the message says by what."""
        algorithm = registry.create("grpo", {"entropy_share": 0.5})
        x = mx.zeros((1, 2))
        scored = protocol.MicroBatch(x, x == 0, mx.ones(1), np.zeros(1, np.int64), entropy=x)
        whole = protocol.StepTotals(2, 4, np.array([4]), micro_batches=2, max_length=2)
        with pytest.raises(ValueError, match=r"2 micro-batches and StepTotals\.entropy_threshold"):
            algorithm.loss(scored, whole)

    def test_the_bonus_is_over_the_steps_tokens(self) -> None:
        """Two parts with thresholds from the step give the bonus of the step in one part."""
        values = np.array([[0.1, 0.9, 0.2], [0.8, 0.7, 0.3]], np.float32)
        mask = np.array([[1, 1, 1], [1, 1, 0]], bool)
        found = entropy.threshold(values, mask, 0.4)
        assert (found.least, found.tokens) == (pytest.approx(0.74), 2)  # of .1 .2 .7 .8 .9: at 0.6 · 4 = 2.4
        algorithm = registry.create("grpo", {"entropy_share": 0.4, "entropy_bonus": 1.0})
        total = 0.0
        for row in range(2):
            whole = protocol.StepTotals(
                2, 5, np.array([5]), 2, 3, entropy_threshold=found.least, entropy_tokens=found.tokens
            )
            x = mx.zeros((1, 3))
            part = protocol.MicroBatch(
                x,
                mx.array(mask[row : row + 1]),
                mx.zeros(1),
                np.zeros(1, np.int64),
                entropy=mx.array(values[row : row + 1]),
            )
            total += float(algorithm.loss(part, whole).entropy)
        assert total == pytest.approx(-(0.9 + 0.8) / 2)

    def test_corrections_weigh_the_policy_part_only(self) -> None:
        """With old - sampling = ln 3 TIS weighs by its cap of 2, MIS by 0, an unrecorded token by 1; the KL keeps 1."""
        three = math.log(3)
        for correction, want in (("tis", -(2 + 1) / 2), ("mis", -(0 + 1) / 2)):
            parts, _ = loss_of(
                "grpo",
                [[-1.0, -1.0]],
                [1],
                sampling=[[-1 - three, math.nan]],
                reference=[[-1.5, -1.5]],
                settings={"correction": correction, "beta": 1.0, "kl_estimator": "k1"},
            )
            assert float(parts.policy) == pytest.approx(want)
            assert float(parts.kl) == pytest.approx(0.5)

    @pytest.mark.parametrize(("correction", "want"), [("tis", [0.5, 0.5, 2.0, 2.0]), ("mis", [0.0, 0.5, 2.0, 0.0])])
    def test_bounds_of_a_correction_belong_to_it(self, correction: str, want: list[float]) -> None:
        """Weights of 0.25, 0.5, 2 and 4 with bounds 0.5 and 2: both bounds stay as they are."""
        raw = mx.array([0.25, 0.5, 2.0, 4.0])
        assert corrections.corrected(raw, correction, 0.5, 2.0).tolist() == want

    def test_sequence_corrections_weigh_rows(self) -> None:
        """Two tokens of ln 2 each make a weight of 4, below the cap of 5."""
        two = math.log(2)
        given = {"sampling": [[-1 - two, -1 - two]]}
        options = {"correction": "tis", "correction_level": "seq_sum", "correction_high": 5.0}
        for name in ("grpo", "gspo", "rloo"):
            parts, _ = loss_of(name, [[-1.0, -1.0]], [1], settings=options, **given)
            assert float(parts.value) == pytest.approx(-4)

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
        """GSPO refuses an advantage for each token."""
        with pytest.raises(ValueError, match="one ratio for a whole row"):
            loss_of("gspo", [[-1.0, -1.0]], [[1, 2]])


def _oracles(aggregation: str) -> dict[str, Any]:
    """What the oracle needs to aggregate so."""
    return {
        "row-mean": {"algorithm": "grpo"},
        "constant": {"algorithm": "dr_grpo", "max_length": 9},
        "global": {"algorithm": "dapo", "dapo_denominator": "global"},
        "group": {"algorithm": "dapo", "dapo_denominator": "group", "group_size": 3},
        "trl": {"algorithm": "dapo", "dapo_denominator": "trl", "tokens_in_step": 40.5},
        "row-sum": {"algorithm": "luspo"},
    }[aggregation]


@pytest.mark.parametrize("aggregation", ["row-mean", "constant", "global", "group", "trl", "row-sum"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_micro_batches_add_up_to_the_oracles_step(aggregation: str, data: st.DataObject) -> None:
    """However nine ragged rows are split, losses and gradients add up to the definition's to 4 roundings of their scale."""
    cuts = sorted(data.draw(st.sets(st.integers(1, 8), max_size=5)))
    lengths = np.array(data.draw(st.lists(st.integers(0, 8), min_size=9, max_size=9)))
    lengths[data.draw(st.integers(0, 8))] = 8
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    policy, old, reference = (-rng.gamma(2.0, 0.7, (9, 8)).astype(np.float32) for _ in range(3))
    inputs = {
        "policy": policy,
        "old": (policy + 0.2 * (old - policy)).astype(np.float32),
        "reference": reference,
        "advantages": rng.normal(size=9).astype(np.float32),
        "mask": np.arange(8) < lengths[:, None],
        "epsilon_low": 0.25,
        "epsilon_high": 0.25,
        "delta": None,
        "beta": 0.5,
        "kl_ratio": "none",
        "kl_estimator": "k3",
        **_oracles(aggregation),
    }
    want = losses.policy_loss(**inputs)
    got = subject.policy_loss_in_parts(**inputs, parts=np.diff([0, *cuts, 9]).tolist())
    unit = 4 * 2.0**-23
    assert abs(got["loss"] - want.loss) <= unit * want.loss_scale + want.branch_slack
    far = ~want.near_branch
    assert (np.abs(got["gradient"] - want.gradient) <= unit * want.gradient_scale + 1e-38)[far].all()


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

    def test_the_kl_in_the_reward_is_the_summed_difference(self) -> None:
        """Masked slots, NaN included, add nothing: (-1 + 3) + (-2 + 2.5) = 2.5."""
        old = mx.array([[-1.0, -2.0, math.nan]])
        reference = mx.array([[-3.0, -2.5, 0.0]])
        assert ratio.kl_in_reward(old, reference, np.array([[True, True, False]])).tolist() == [2.5]
