"""`rlkernels.group_advantages`: by hand, against exact arithmetic, and its rules."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlkernels

NAN = np.nan
PLAIN = {"scale": "group", "ddof": 0, "eps": 0.0, "eps_mode": "add", "baseline": "mean"}
UNIT_ROUNDOFF = {np.float32: 2.0**-24, np.float64: 2.0**-53}
FACTOR = {np.float32: 4, np.float64: 8}


def advantages(rewards: list[float], size: int, dtype: Any = np.float64, **options: Any) -> list[float]:
    """Advantages under PLAIN, changed by `options`, as a list."""
    result = rlkernels.group_advantages(np.array(rewards, dtype), size, **(PLAIN | options))
    assert result.dtype == dtype
    return list(result.tolist())


def scored(rewards: Any) -> list[mpmath.mpf]:
    """The rewards that are no NaN, exactly."""
    return [mpmath.mpf(float(r)) for r in rewards if not np.isnan(r)]


def std_plus_eps(rewards: Any, options: dict[str, Any], eps: float) -> mpmath.mpf:
    """The divisor by its definition; 0 stands for "below the threshold"."""
    values = scored(rewards)
    mean = mpmath.fsum(values) / len(values)
    variance = mpmath.fsum([(v - mean) ** 2 for v in values]) / (len(values) - options["ddof"])
    if options["eps_mode"] == "add":
        return mpmath.sqrt(variance) + eps
    if options["eps_mode"] == "inside":
        return mpmath.sqrt(variance + eps)
    return mpmath.sqrt(variance) if mpmath.sqrt(variance) >= eps else mpmath.mpf(0)


def assert_accurate(rewards: np.ndarray[Any, Any], size: int, options: dict[str, Any]) -> None:
    """|got - want| <= k * 2u * max|R_g| / divisor for every element, `want` from 60-digit arithmetic."""
    got = rlkernels.group_advantages(rewards, size, **options)
    kind = rewards.dtype.type
    eps = float(kind(options["eps"]))
    with mpmath.workdps(60):  # errors are judged against the greatest reward: no more digits are needed
        for start in range(0, len(rewards), size):
            group = rewards[start : start + size]
            values = scored(group)
            if not values or min(values) == max(values):
                assert not got[start : start + size].any()
                continue
            whole = {"group": group, "batch": rewards, "none": None}[options["scale"]]
            divisor = mpmath.mpf(1) if whole is None else std_plus_eps(whole, options, eps)
            total, greatest = mpmath.fsum(values), max(abs(v) for v in values)
            for index, reward in enumerate(group):
                have = float(got[start + index])
                if np.isnan(reward) or divisor == 0:
                    assert have == 0.0
                    continue
                exact = mpmath.mpf(float(reward))
                alone = options["baseline"] == "leave-one-out"
                baseline = (total - exact) / (len(values) - 1) if alone else total / len(values)
                want, scale = (exact - baseline) / divisor, greatest / divisor
                limit = FACTOR[kind] * 2 * UNIT_ROUNDOFF[kind] * scale
                tiny = float(np.finfo(kind).smallest_subnormal)
                assert abs(have - want) <= limit + tiny, (group, index, have, float(want))


class TestByHand:
    """Small groups that anybody can recompute."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(
        ("rewards", "size", "options", "want"),
        [
            # mean 0.5, every deviation 0.5, so std (ddof 0) is 0.5
            pytest.param([1, 0, 0, 1], 4, {}, [1, -1, -1, 1], id="z-score"),
            # deviations -1, 1; sum of squares 2; ddof 1 divides by 1: std is sqrt(2)
            pytest.param([1, 3], 2, {"ddof": 1}, [-(0.5**0.5), 0.5**0.5], id="ddof-1"),
            # std 1, eps 1
            pytest.param([1, 3], 2, {"eps": 1.0}, [-0.5, 0.5], id="eps-added"),
            # var 1, eps 3: sqrt(4)
            pytest.param([1, 3], 2, {"eps": 3.0, "eps_mode": "inside"}, [-0.5, 0.5], id="eps-inside"),
            pytest.param([1, 3], 2, {"eps": 1.5, "eps_mode": "threshold"}, [0, 0], id="std-below-threshold"),
            # the comparison is strict: std 1 is not below 1
            pytest.param([1, 3], 2, {"eps": 1.0, "eps_mode": "threshold"}, [-1, 1], id="std-at-threshold"),
            pytest.param([1, 3, 5, 5], 2, {"scale": "none"}, [-1, 1, 0, 0], id="no-divisor"),
            # batch mean 0, squares 49 + 49 + 1 + 1 = 100 over 4: std 5
            pytest.param([-7, 7, -1, 1], 2, {"scale": "batch"}, [-1.4, 1.4, -0.2, 0.2], id="batch"),
            # others of 1: (2+6)/2 = 4; of 2: 3.5; of 6: 1.5
            pytest.param(
                [1, 2, 6], 3, {"scale": "none", "baseline": "leave-one-out"}, [-3, -1.5, 4.5], id="leave-one-out"
            ),
            # NaN left out: mean of 1 and 3 is 2, std 1
            pytest.param([1, NAN, 3], 3, {}, [-1, 0, 1], id="unscored"),
            # others of 1: 3; of 3: 1
            pytest.param(
                [1, NAN, 3], 3, {"scale": "none", "baseline": "leave-one-out"}, [-2, 0, 2], id="unscored-leave-one-out"
            ),
            pytest.param([NAN, 7, NAN, NAN], 2, {"ddof": 1}, [0, 0, 0, 0], id="one-scored-and-none-scored"),
            pytest.param([3, 4, 5], 1, {"ddof": 1}, [0, 0, 0], id="groups-of-one"),
        ],
    )
    def test_value(
        self, rewards: list[float], size: int, options: dict[str, Any], want: list[float], dtype: Any
    ) -> None:
        """The advantages are those computed by hand."""
        assert advantages(rewards, size, dtype, **options) == pytest.approx(
            want, rel=1e-6 if dtype is np.float32 else 1e-15
        )

    def test_defaults_are_trl(self) -> None:
        """Without options the convention is TRL's: std of the group with ddof 1, plus 1e-4."""
        rewards = np.array([1.0, 3.0])
        want = 1.0 / (2.0**0.5 + 1e-4)  # deviation 1, std sqrt(2)
        assert rlkernels.group_advantages(rewards, 2).tolist() == pytest.approx([-want, want], rel=1e-15)


class TestRules:
    """What no formula shows."""

    @pytest.mark.parametrize("value", [0.1, 0.35, 1e300, -1e-320, 1 / 3])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("baseline", ["mean", "leave-one-out"])
    def test_constant_group_is_zero(self, value: float, dtype: Any, baseline: str) -> None:
        """Equal rewards give exactly 0 even without eps: rounding residues are not amplified."""
        if dtype is np.float32 and value == 1e300:
            value = 1e30
        result = advantages([value] * 7, 7, dtype, baseline=baseline)
        assert result == [0.0] * 7

    def test_constant_group_in_a_batch_is_zero(self) -> None:
        """A constant group gives 0 although the batch varies."""
        assert advantages([0.1, 0.1, 0.1, 1, 2, 4], 3, scale="batch")[:3] == [0.0, 0.0, 0.0]

    def test_no_eps_gives_no_nan(self) -> None:
        """The smallest difference there is still has a positive std."""
        tiny = float(np.finfo(np.float64).smallest_subnormal)
        assert advantages([0.0, tiny], 2) == [-1.0, 1.0]
        assert advantages([1.0, 1.0 + 2**-52], 2) == [-1.0, 1.0]

    def test_nan_of_any_sign_is_unscored(self) -> None:
        """A negative NaN means "not scored" as well."""
        assert advantages([1.0, float(np.copysign(NAN, -1.0)), 3.0], 3) == [-1.0, 0.0, 1.0]


class TestAccuracy:
    """|got - want| <= k * 2u * max|R_g| / divisor against 60-digit arithmetic."""

    @pytest.mark.parametrize(
        "rewards",
        [
            pytest.param([1e300, -1e300, 0.5e300, 1e300], id="squares-overflow"),
            pytest.param([1.7e308, 1.7e308, 1.6e308, 1.7e308], id="sum-overflows"),
            pytest.param([1e-300, 3e-300, 2e-300, 7e-300], id="squares-vanish"),
            pytest.param([5e-324, 1e-323, 0.0, 5e-324], id="subnormal"),
            pytest.param([1e8, 1e8 + 1, 1e8 + 2, 1e8 + 4], id="large-mean"),
            pytest.param([1 + 2**-52, 1.0, 1.0, 1.0], id="one-ulp"),
            pytest.param([1e300, 1.0, 1e-300, 2e-300], id="mixed"),
        ],
    )
    @pytest.mark.parametrize("eps_mode", ["add", "inside", "threshold"])
    @pytest.mark.parametrize("eps", [0.0, 1e-4])
    @pytest.mark.parametrize("scale", ["group", "batch", "none"])
    def test_extreme_float64(self, rewards: list[float], eps_mode: str, eps: float, scale: str) -> None:
        """Huge, tiny and nearly equal rewards stay inside the bound."""
        options = {"scale": scale, "ddof": 1, "eps": eps, "eps_mode": eps_mode, "baseline": "mean"}
        assert_accurate(np.array(rewards), 4, options)

    @pytest.mark.parametrize("tiny", [7.6e-141, 1e-300, 3e-310])
    @pytest.mark.parametrize("huge", [2.6e120, 1e300])
    def test_a_tiny_group_in_a_huge_batch(self, huge: float, tiny: float) -> None:
        """What brings the batch's squares into range does not make a small group vanish."""
        options = PLAIN | {"scale": "batch"}
        assert_accurate(np.array([0.0, huge, tiny, 0.0, 3 * tiny, 2 * tiny]), 2, options)

    @given(data=st.data())
    @settings(max_examples=150, deadline=None)
    def test_any_rewards(self, data: st.DataObject) -> None:
        """Every convention, both types, any finite rewards, some unscored."""
        kind = data.draw(st.sampled_from([np.float32, np.float64]))
        width = 32 if kind is np.float32 else 64
        most = 1e30 if kind is np.float32 else 1e150
        number = (
            st.floats(-most, most, width=width) if kind is np.float64 else st.floats(-(2.0**100), 2.0**100, width=32)
        )
        size = data.draw(st.integers(2, 6))
        groups = data.draw(st.integers(1, 3))
        reward = st.one_of(number, st.sampled_from([0.0, 1.0, 0.1, NAN]))
        rewards = data.draw(st.lists(reward, min_size=size * groups, max_size=size * groups))
        options = {
            "scale": data.draw(st.sampled_from(["group", "batch", "none"])),
            "ddof": data.draw(st.integers(0, 1)),
            "eps": data.draw(st.sampled_from([0.0, 1e-8, 1e-4])),
            "eps_mode": data.draw(st.sampled_from(["add", "inside"])),
            "baseline": data.draw(st.sampled_from(["mean", "leave-one-out"])),
        }
        assert_accurate(np.array(rewards, kind), size, options)

    def test_a_large_group(self) -> None:
        """Sums of 4096 rewards lose nothing."""
        rewards = 1e6 + np.random.default_rng(20).normal(size=4096)
        assert_accurate(rewards, 4096, PLAIN | {"ddof": 1})


class TestErrors:
    """A wrong input is named with its value."""

    @pytest.mark.parametrize(
        ("rewards", "size", "options", "message"),
        [
            pytest.param([], 1, {}, "`rewards` is empty", id="empty"),
            pytest.param(
                [1.0, 2.0, 3.0],
                2,
                {},
                "`rewards` has 3 elements, must be a multiple of `group_size` 2",
                id="not-divisible",
            ),
            pytest.param([1.0], 2**62, {}, "multiple of `group_size` 4611686018427387904", id="huge-group"),
            pytest.param(
                [1.0], 2**70, {}, "`group_size` is 1180591620717411303424, must fit into 64 bits", id="absurd-group"
            ),
            pytest.param([1.0], 0, {}, "`group_size` is 0, must be at least 1", id="no-group"),
            pytest.param([1.0], -3, {}, "`group_size` is -3, must be at least 1", id="negative-group"),
            pytest.param([1.0, np.inf], 2, {}, r"`rewards\[1\]` is inf", id="inf"),
            pytest.param([1.0, 2.0, -np.inf, 0.0], 2, {"scale": "none"}, r"`rewards\[2\]` is -inf", id="minus-inf"),
            pytest.param(
                [1.0], 1, {"baseline": "leave-one-out"}, "`group_size` is 1, must be at least 2", id="no-others"
            ),
            pytest.param([1.0], 1, {"ddof": 2}, "`ddof` is 2", id="ddof"),
            pytest.param([1.0], 1, {"eps": -1e-9}, "`eps` is -0.000000001", id="negative-eps"),
            pytest.param([1.0], 1, {"eps": np.nan}, "`eps` is NaN", id="nan-eps"),
            pytest.param([1.0], 1, {"eps": np.inf}, "`eps` is inf", id="infinite-eps"),
            pytest.param(
                [1.0], 1, {"scale": "grup"}, '`scale` is "grup", must be one of "group", "batch", "none"', id="scale"
            ),
            pytest.param([1.0], 1, {"eps_mode": "sum"}, '`eps_mode` is "sum"', id="eps-mode"),
            pytest.param([1.0], 1, {"baseline": "median"}, '`baseline` is "median"', id="baseline"),
        ],
    )
    def test_value_error(self, rewards: list[float], size: int, options: dict[str, Any], message: str) -> None:
        """The message names the argument and what was found."""
        with pytest.raises(ValueError, match=message):
            advantages(rewards, size, **options)

    def test_eps_beyond_the_type(self) -> None:
        """An eps that float32 cannot hold is refused for float32 data and taken for float64."""
        with pytest.raises(ValueError, match="`eps` is inf in float32"):
            advantages([1.0, 2.0], 2, np.float32, eps=1e300)
        assert advantages([1.0, 2.0], 2, eps=1e300) == pytest.approx([-0.5e-300, 0.5e-300])
