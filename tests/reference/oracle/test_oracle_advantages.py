"""Advantages equal hand computations, mpmath, and the rules for constant and unscored groups."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates_reference.oracle.advantages import (
    advantage_scale,
    group_advantages,
    normalise_then_sum,
    normalise_then_sum_scale,
)

TRL: dict[str, Any] = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}
NAN = math.nan


class TestGroupAdvantages:
    """The z-score in its conventions, by hand."""

    # Rewards 1 0 0 1: mean 1/2, deviations +-1/2, sum of squares 1.
    # ddof 0: var 1/4, std 0.5.  ddof 1: var 1/3, std 0.577350269...
    @pytest.mark.parametrize(
        ("change", "magnitude"),
        [
            pytest.param({}, 0.5 / (1 / math.sqrt(3) + 1e-4), id="trl"),
            pytest.param({"ddof": 0, "eps": 1e-8, "eps_mode": "threshold"}, 1.0, id="rlox: 0.5 / 0.5"),
            pytest.param({"ddof": 0, "eps": 1e-8, "eps_mode": "inside"}, 0.5 / math.sqrt(0.25 + 1e-8), id="mlxrl"),
            pytest.param({"ddof": 0}, 0.5 / (0.5 + 1e-4), id="mlx-lm-lora"),
            pytest.param({"scale": "none", "ddof": None, "eps": None, "eps_mode": None}, 0.5, id="dr-grpo"),
            pytest.param({"ddof": 0, "eps": 0.6, "eps_mode": "threshold"}, 0.0, id="std 0.5 below threshold 0.6"),
            pytest.param({"ddof": 0, "eps": 0.5, "eps_mode": "threshold"}, 1.0, id="std 0.5 at threshold 0.5 stays"),
        ],
    )
    def test_conventions(self, change: dict[str, Any], magnitude: float) -> None:
        """Each preset divides the deviation of a half by its own spread."""
        got = group_advantages([1.0, 0.0, 0.0, 1.0], 4, **TRL | change)
        np.testing.assert_allclose(got, magnitude * np.array([1, -1, -1, 1]), rtol=1e-15)

    def test_leave_one_out_skips_unscored(self) -> None:
        """1 nan 6: each scored member's baseline is the other one."""
        got = group_advantages([1.0, NAN, 6], 3, **TRL | {"scale": "none", "baseline": "leave-one-out"})
        np.testing.assert_array_equal(got, [-5.0, 0.0, 5.0])

    @pytest.mark.parametrize(("scale", "divisor"), [("none", 1.0), ("batch", math.sqrt(6))])
    @pytest.mark.parametrize(("baseline", "above"), [("batch", [-2.0, 0, 0, -2, 4, 0]), ("none", [0.0, 2, 0, 0, 6, 0])])
    def test_baselines_that_are_not_of_the_group(
        self, baseline: str, above: list[float], scale: str, divisor: float
    ) -> None:
        """0 2 nan | 0 6 nan: batch mean 2, squares 4 0 4 16, var 24/4 = 6."""
        change = {"baseline": baseline, "scale": scale, "ddof": 0, "eps": 0.0}
        got = group_advantages([0.0, 2, NAN, 0, 6, NAN], 3, **TRL | change)
        np.testing.assert_allclose(got, np.array(above) / divisor, rtol=1e-15)

    @pytest.mark.parametrize("baseline", ["batch", "none"])
    def test_equal_rewards_of_the_batch(self, baseline: str) -> None:
        """They give 0 where something is subtracted or divides, and else themselves."""
        asked = TRL | {"baseline": baseline, "scale": "batch", "eps": 0.0}
        assert not np.any(group_advantages([0.1] * 6, 3, **asked))
        plain = group_advantages([0.1] * 6, 3, **asked | {"scale": "none"})
        assert np.all(plain == (0.1 if baseline == "none" else 0.0))

    @pytest.mark.parametrize("reward", [0.35, 0.1, 1e300, -0.7])
    @pytest.mark.parametrize("scale", ["group", "batch", "none"])
    @pytest.mark.parametrize("baseline", ["mean", "leave-one-out"])
    def test_constant_group_is_zero(self, reward: float, scale: str, baseline: str) -> None:
        """Equal rewards give exactly 0, with eps 0 too, although their computed mean may differ from them."""
        got = group_advantages(
            [reward] * 3 + [0.0, 1.0, 2.0], 3, **TRL | {"scale": scale, "eps": 0.0, "baseline": baseline}
        )
        assert not np.any(got[:3])
        assert np.all(np.signbit(got[:3]) == 0)
        assert np.any(got[3:])

    def test_unscored_rewards(self) -> None:
        """A NaN is left out of mean and std: nan 1 3 is the group 1 3 with std 1; one scored reward gives 0."""
        got = group_advantages([NAN, 1.0, 3.0, NAN, 5.0, NAN], 3, **TRL | {"ddof": 0, "eps": 0.0})
        np.testing.assert_array_equal(got, [0.0, -1.0, 1.0, 0.0, 0.0, 0.0])

    @pytest.mark.parametrize("factor", [1e-170, 1e150, 2.0**-500])
    def test_tiny_and_huge_rewards(self, factor: float) -> None:
        """Squares that underflow or overflow do not change a z-score without eps."""
        got = group_advantages(np.array([0.0, 1.0]) * factor, 2, **TRL | {"ddof": 0, "eps": 0.0})
        np.testing.assert_allclose(got, [-1.0, 1.0], rtol=1e-15)

    @settings(max_examples=60, deadline=None, database=None)
    @given(
        rewards=st.lists(st.floats(-1e3, 1e3, width=32), min_size=6, max_size=6),
        ddof=st.sampled_from([0, 1]),
        mode=st.sampled_from(["add", "inside"]),
        scale=st.sampled_from(["group", "batch", "none"]),
        baseline=st.sampled_from(["mean", "leave-one-out"]),
    )
    def test_agrees_with_mpmath(self, rewards: list[float], ddof: int, mode: str, scale: str, baseline: str) -> None:
        """Forty digits give the same advantage within 8 * 2u times the stated scale."""
        options: dict[str, Any] = {"scale": scale, "ddof": ddof, "eps": 1e-4, "eps_mode": mode, "baseline": baseline}
        got, unit = group_advantages(rewards, 3, **options), advantage_scale(rewards, 3, **options)
        with mpmath.workdps(40):
            for i, value in enumerate(rewards):
                group = rewards[i // 3 * 3 : i // 3 * 3 + 3]
                if max(group) == min(group):
                    assert got[i] == unit[i] == 0
                    continue
                others = group[: i % 3] + group[i % 3 + 1 :]
                base = mpmath.fsum(group) / 3 if baseline == "mean" else mpmath.fsum(others) / 2
                spread = group if scale == "group" else rewards
                mean = mpmath.fsum(spread) / len(spread)
                var = mpmath.fsum((mpmath.mpf(x) - mean) ** 2 for x in spread) / (len(spread) - ddof)
                divisor = mpmath.sqrt(var) + 1e-4 if mode == "add" else mpmath.sqrt(var + 1e-4)
                want = (value - base) / (1 if scale == "none" else divisor)
                assert abs(got[i] - want) <= 8 * 2 * 2.0**-53 * unit[i]

    @pytest.mark.parametrize(
        ("rewards", "size", "change", "message"),
        [
            ([], 2, {}, "0 elements"),
            ([1.0, 2, 3], 2, {}, "3 elements"),
            ([1.0, math.inf], 2, {}, "`rewards` is inf.*index 1"),
            ([1.0, 2], 1, {"baseline": "leave-one-out"}, "`group_size` is 1"),
            ([1.0, 2], 0, {}, "`group_size` is 0"),
            ([1.0, 2], 2, {"ddof": 2}, "`ddof` is 2"),
            ([1.0, 2], 2, {"eps": -1.0}, "`eps` is -1.0"),
            ([1.0, 2], 2, {"eps_mode": "outside"}, "`eps_mode` is 'outside'"),
            ([1.0, 2], 2, {"scale": "world"}, "`scale` is 'world'"),
            ([1.0, 2], 2, {"baseline": "median"}, "`baseline` is 'median'"),
            ([1.0, 2], 2, {"baseline": "batch"}, "`scale` is 'group'"),
            ([[1.0, 2]], 2, {}, "1 axes"),
        ],
    )
    def test_errors(self, rewards: list[float], size: int, change: dict[str, Any], message: str) -> None:
        """What cannot be an advantage is refused with its value, by the scale as well."""
        for function in (group_advantages, advantage_scale):
            with pytest.raises(ValueError, match=message):
                function(rewards, size, **TRL | change)


def test_advantage_scale_by_hand() -> None:
    """0 2 | 5 5 | nan -7: max|R| / std is 2 / 1; constant and lone groups are exact."""
    got = advantage_scale([0.0, 2, 5, 5, NAN, -7], 2, **TRL | {"ddof": 0, "eps": 0.0})
    np.testing.assert_array_equal(got, [2.0, 2.0, 0.0, 0.0, 0.0, 0.0])


class TestNormaliseThenSum:
    """The two-stage advantage of GDPO."""

    OPTIONS: dict[str, Any] = {"group_ddof": 0, "group_eps": 0.0, "batch_ddof": 0, "batch_eps": 0.0}  # noqa: RUF012

    def test_by_hand(self) -> None:
        """Two groups of two and two functions.

        z of f0: -1 1 | 0 0 (constant); z of f1: 1 -1 | -1 1; with weights 2 and 1 the sums are -1 1 | -1 1:
        mean 0, std 1.
        """
        rewards = [[0.0, 9], [4, 7], [3, 0], [3, 1]]
        np.testing.assert_array_equal(normalise_then_sum(rewards, [2.0, 1.0], 2, **self.OPTIONS), [-1, 1, -1, 1])
        # S: f0 has max|R| / std = 4/2 | 0, f1 9/1 | 1/0.5; 2*2 + 1*9 = 13 is the largest, over std 1.
        np.testing.assert_array_equal(normalise_then_sum_scale(rewards, [2.0, 1.0], 2, **self.OPTIONS), [13.0] * 4)

    def test_batch_stage_has_its_own_conventions(self) -> None:
        """Sums -1 1 -1 1 with ddof 1: std sqrt(4/3), plus 0.5."""
        got = normalise_then_sum([[0.0], [1], [0], [1]], [1.0], 2, **self.OPTIONS | {"batch_ddof": 1, "batch_eps": 0.5})
        np.testing.assert_allclose(got, np.array([-1, 1, -1, 1]) / (math.sqrt(4 / 3) + 0.5), rtol=1e-15)

    def test_unscored(self) -> None:
        """A NaN counts 0 in the sum; a row of NaN only is out of the batch's mean and std.

        f0: -1 1 | nan 0 (lone); f1: -1 1 | nan 0 (lone): sums -2 2 nan 0, mean 0, var 8/3.
        """
        rewards = [[0.0, 0], [1, 1], [NAN, NAN], [5, 5]]
        got = normalise_then_sum(rewards, [1.0, 1.0], 2, **self.OPTIONS)
        np.testing.assert_allclose(got, np.array([-2, 2, 0, 0]) / math.sqrt(8 / 3), rtol=1e-15)
        assert normalise_then_sum_scale(rewards, [1.0, 1.0], 2, **self.OPTIONS)[2] == 0

    def test_constant_sum_is_zero(self) -> None:
        """Functions that are constant in every group leave nothing to normalise."""
        rewards = [[1.0, 2], [1, 2], [3, 4], [3, 4]]
        assert not np.any(normalise_then_sum(rewards, [1.0, 1.0], 2, **self.OPTIONS))
        assert not np.any(normalise_then_sum_scale(rewards, [1.0, 1.0], 2, **self.OPTIONS))

    @pytest.mark.parametrize("weights", [[1.0], [1.0, NAN], [1.0, 1.0, 1.0]])
    def test_errors(self, weights: list[float]) -> None:
        """One finite weight per function is needed."""
        with pytest.raises(ValueError, match="`weights`"):
            normalise_then_sum([[0.0, 1], [1, 0]], weights, 2, **self.OPTIONS)
