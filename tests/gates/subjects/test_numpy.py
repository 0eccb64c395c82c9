"""The NumPy baseline against hand-worked numbers, finite differences and invariants, without the oracle."""

import math
from typing import Any

import numpy as np
import pytest

from gates.subjects.numpy_baseline import advantages as group_rewards
from gates.subjects.numpy_baseline import kl, terms

Array = np.ndarray[Any, Any]
NAN, INF = math.nan, math.inf
CENTRED = {"scale": "none", "ddof": None, "eps": None, "eps_mode": None}


def advantages(rewards: list[float], group_size: int, dtype: str = "float64", **conventions: Any) -> Array:
    """Advantages with ddof 0 and no eps unless given otherwise, so that they can be computed by hand."""
    chosen = {"scale": "group", "ddof": 0, "eps": 0.0, "eps_mode": "add", "baseline": "mean", **conventions}
    return group_rewards.group_advantages(np.array(rewards, dtype), group_size, **chosen)


class TestGroupAdvantages:
    """R minus a baseline, divided by a spread."""

    @pytest.mark.parametrize(
        ("conventions", "expected"),
        [
            # Rewards 1 3 | 0 8: means 2 and 4, deviations -1 1 | -4 4, all deviations around 3: -2 0 -3 5, squares 38.
            pytest.param({}, [-1, 1, -1, 1], id="ddof-0"),
            pytest.param({"ddof": 1}, [-(0.5**0.5), 0.5**0.5] * 2, id="ddof-1"),
            pytest.param({"eps": 1.0}, [-0.5, 0.5, -0.8, 0.8], id="eps-added"),
            pytest.param({"eps": 3.0, "eps_mode": "inside"}, [-0.5, 0.5, -4 / 19**0.5, 4 / 19**0.5], id="eps-inside"),
            pytest.param({"eps": 2.0, "eps_mode": "threshold"}, [0, 0, -1, 1], id="below-threshold"),
            pytest.param({"eps": 1.0, "eps_mode": "threshold"}, [-1, 1, -1, 1], id="at-threshold"),
            pytest.param({"scale": "batch"}, np.array([-1, 1, -4, 4]) / 9.5**0.5, id="batch-ddof-0"),
            pytest.param({"scale": "batch", "ddof": 1}, np.array([-1, 1, -4, 4]) / (38 / 3) ** 0.5, id="batch-ddof-1"),
            pytest.param(CENTRED, [-1, 1, -4, 4], id="centred"),
            pytest.param({**CENTRED, "baseline": "leave-one-out"}, [-2, 2, -8, 8], id="leave-one-out"),
        ],
    )
    def test_hand_worked_conventions(self, conventions: dict[str, Any], expected: list[float]) -> None:
        """Each convention gives what a hand computes for two groups of two."""
        np.testing.assert_allclose(advantages([1, 3, 0, 8], 2, **conventions), expected, rtol=4e-16)

    @pytest.mark.parametrize("scale", ["group", "none"])
    @pytest.mark.parametrize("baseline", ["mean", "leave-one-out"])
    @pytest.mark.parametrize("reward", [0.1, 0.35, -1e300, 5e-324])
    def test_constant_group_is_exactly_zero(self, reward: float, baseline: str, scale: str) -> None:
        """Equal rewards give exactly 0, even if their mean is rounded."""
        assert not advantages([reward] * 6, 6, scale=scale, baseline=baseline).any()

    def test_constant_group_in_a_spread_batch_is_zero(self) -> None:
        """With the spread of the batch a constant group still gives 0."""
        assert advantages([0.1, 0.1, 0.1, 1, 2, 3], 3, scale="batch")[:3].tolist() == [0, 0, 0]

    def test_unscored_reward_is_left_out(self) -> None:
        """NaN has advantage 0 and does not count in mean and spread: 1 3 NaN is the pair 1 3."""
        assert advantages([1, 3, NAN, NAN, 8, NAN, NAN, NAN, NAN], 3).tolist() == [-1, 1, 0, 0, 0, 0, 0, 0, 0]

    def test_leave_one_out_counts_the_scored(self) -> None:
        """The others are the other scored ones: of 1, 3, 8 and NaN, 1 is compared with 5.5."""
        got = advantages([1, 3, 8, NAN], 4, **{**CENTRED, "baseline": "leave-one-out"})
        assert got.tolist() == [-4.5, -1.5, 6, 0]

    @pytest.mark.parametrize("factor", [1e300, 1e-300], ids=["huge", "tiny"])
    def test_squares_stay_in_range(self, factor: float) -> None:
        """Without eps the z-score does not depend on the unit of the reward."""
        np.testing.assert_allclose(advantages([factor, 3 * factor], 2), [-1, 1], rtol=4e-16)

    @pytest.mark.parametrize("dtype", ["float32", "float64", ">f4", ">f8"])
    def test_dtype_is_the_rewards(self, dtype: str) -> None:
        """The result has the dtype of the data, in native byte order."""
        assert advantages([1, 3], 2, dtype).dtype == np.dtype(dtype).newbyteorder("=")

    def test_float32_is_rounded_once(self) -> None:
        """float32 rewards far from 0 lose nothing but the last rounding."""
        rewards = (1e4 + np.random.default_rng(0).normal(size=64)).astype(np.float32)
        wide = advantages(rewards.astype(np.float64).tolist(), 8, eps=1e-4)
        np.testing.assert_array_equal(advantages(rewards.tolist(), 8, "float32", eps=1e-4), wide.astype(np.float32))

    @pytest.mark.parametrize(
        ("rewards", "group_size", "conventions", "message"),
        [
            pytest.param([1, 2, 3], 2, {}, "`rewards` has 3 elements.*group_size 2", id="not-a-multiple"),
            pytest.param([], 2, {}, "`rewards` has 0 elements", id="empty"),
            pytest.param([1, INF], 2, {}, "`rewards` is inf at index 1", id="infinite"),
            pytest.param([1, 2], 0, {}, "`group_size` is 0", id="no-group"),
            pytest.param([1, 2], 1, {"baseline": "leave-one-out"}, "`group_size` is 1.*at least 2", id="no-others"),
            pytest.param([1, 2], 2, {"scale": "std"}, "`scale` is 'std'", id="scale"),
            pytest.param([1, 2], 2, {"ddof": 2}, "`ddof` is 2", id="ddof"),
            pytest.param([1, 2], 2, {"eps": -1.0}, "`eps` is -1.0", id="eps"),
            pytest.param([1, 2], 2, {"eps_mode": "max"}, "`eps_mode` is 'max'", id="eps-mode"),
        ],
    )
    def test_errors_name_the_argument(
        self, rewards: list[float], group_size: int, conventions: dict[str, Any], message: str
    ) -> None:
        """Invalid arguments raise a ValueError with name, value and rule."""
        with pytest.raises(ValueError, match=message):
            advantages(rewards, group_size, **conventions)

    def test_integers_are_refused(self) -> None:
        """Integer rewards have no floating-point dtype for the result."""
        with pytest.raises(ValueError, match="`rewards` has dtype int64"):
            group_rewards.group_advantages(np.array([1, 2]), 2)


class TestTokenKl:
    """Sampled KL with d = reference - policy."""

    @pytest.mark.parametrize(
        ("estimator", "expected"),
        [("k1", [-1, 2, 0]), ("k2", [0.5, 2, 0]), ("k3", [math.e - 2, math.exp(-2) + 1, 0])],
    )
    def test_hand_worked_estimators(self, estimator: str, expected: list[float]) -> None:
        """Each estimator is its formula for d of 1, -2 and 0, and 0 is positive."""
        got = kl.token_kl(np.array([-2.0, -1.0, -3.0]), np.array([-1.0, -3.0, -3.0]), estimator=estimator)
        np.testing.assert_allclose(got, expected, rtol=1e-15)
        assert not np.signbit(got[2])

    @pytest.mark.parametrize("d", [1e-2, -1e-2, 1e-8, -1e-8, 1e-150])
    def test_k3_keeps_its_digits_near_zero(self, d: float) -> None:
        """Near 0 k3 is d²/2 + d³/6 + d⁴/24, where expm1(d) - d has no digit left."""
        assert terms.k3(np.array(d)) == pytest.approx(d * d * (1 / 2 + d / 6 + d * d / 24 + d**3 / 120), rel=1e-11)

    @pytest.mark.parametrize("radius", [2.0, -2.0])
    def test_k3_has_no_step_where_the_series_ends(self, radius: float) -> None:
        """Series and closed form meet at |d| = 2 to a few units in the last place."""
        inside, outside = terms.k3(np.array([radius, radius * (1 + 1e-15)]))
        assert outside == pytest.approx(inside, rel=1e-14)

    def test_overflow_is_infinite(self) -> None:
        """A difference beyond the range of exp gives +inf, never NaN."""
        assert terms.k3(np.array([800.0, INF, -INF])).tolist() == [INF, INF, INF]

    def test_masked_slots_are_zero_whatever_they_hold(self) -> None:
        """NaN and infinity in masked slots have no effect."""
        policy, mask = np.array([[-1.0, NAN, -INF]]), np.array([[True, False, False]])
        got = kl.token_kl(policy, np.array([[-1.5, -1.0, NAN]]), estimator="k1", mask=mask)
        assert got.tolist() == [[0.5, 0.0, 0.0]]

    @pytest.mark.parametrize(("reduction", "expected"), [("sum", [3.0, 0.0, 7.0]), ("mean", [1.5, 0.0, 7.0])])
    def test_sequences_are_reduced_alike(self, reduction: str, expected: list[float]) -> None:
        """Prefixes of rows, a mask and ragged sequences give the same sums, and 0 for an empty one."""
        rows = np.array([[1.0, 2.0, 9.0], [9.0, 9.0, 9.0], [7.0, 9.0, 9.0]])
        lengths = np.array([2, 0, 1])
        ways: list[tuple[Array, dict[str, Array]]] = [
            (rows, {"lengths": lengths}),
            (rows, {"mask": np.arange(3) < lengths[:, None]}),
            (np.array([1.0, 2.0, 7.0]), {"lengths": lengths}),
        ]
        for policy, where in ways:
            got = kl.token_kl(policy, np.zeros_like(policy), estimator="k1", reduction=reduction, **where)
            assert got.tolist() == expected

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            pytest.param({"estimator": "k4"}, "`estimator` is 'k4'", id="estimator"),
            pytest.param({"reduction": "max"}, "`reduction` is 'max'", id="reduction"),
            pytest.param({"reference": np.zeros((2, 2))}, "`reference` has shape", id="shape"),
            pytest.param({"lengths": np.array([3, 4])}, "`lengths` is .*at most 3", id="long"),
            pytest.param({"lengths": np.array([3, -1])}, "`lengths` is -1 at index 1", id="negative"),
            pytest.param({"lengths": np.array([1.0, 2.0])}, "`lengths` has dtype float64", id="fractional"),
            pytest.param({"mask": np.ones((2, 2), bool)}, "`mask` has shape", id="mask-shape"),
            pytest.param({"mask": np.full((2, 3), 2)}, "only 0 and 1", id="mask-value"),
            pytest.param({"mask": np.ones((2, 3), bool), "lengths": np.array([1, 1])}, "both given", id="both"),
        ],
    )
    def test_errors_name_the_argument(self, changes: dict[str, Any], message: str) -> None:
        """Inconsistent shapes, lengths and conventions raise a ValueError."""
        inputs: dict[str, Any] = {"policy": np.zeros((2, 3)), "reference": np.zeros((2, 3)), "estimator": "k3"}
        with pytest.raises(ValueError, match=message):
            kl.token_kl(**{**inputs, **changes})

    def test_ragged_lengths_must_add_up(self) -> None:
        """Ragged lengths that do not cover all tokens, and a reduction without lengths, are errors."""
        flat = np.zeros(5)
        with pytest.raises(ValueError, match="must sum to the 5 tokens"):
            kl.token_kl(flat, flat, lengths=np.array([2, 2]))
        with pytest.raises(ValueError, match="`lengths` is None"):
            kl.token_kl(flat, flat, reduction="sum")


class TestKlRatio:
    """Estimates under another policy's samples."""

    POLICY, OLD = np.array([[-1.0, -2.0, 9.0]]), np.array([[-1.5, -3.0, NAN]])  # log ratios 1/2 and 1, then masked

    @pytest.mark.parametrize(
        ("kl_ratio", "expected"),
        [
            ("none", [1, 2, 0]),
            ("token", [math.exp(0.5), 2 * math.e, 0]),
            ("sequence", [math.exp(0.75), 2 * math.exp(0.75), 0]),
        ],
    )
    def test_hand_worked_ratios(self, kl_ratio: str, expected: list[float]) -> None:
        """k1 of 1 and 2 times the token's ratio, or the one of the sequence's mean over what counts."""
        inputs: dict[str, Any] = {"estimator": "k1", "lengths": np.array([2]), "kl_ratio": kl_ratio}
        reference = np.array([[-2.0, -4.0, NAN]])
        got = kl.token_kl(self.POLICY, reference, old=self.OLD, **inputs)
        np.testing.assert_allclose(got, [expected], rtol=1e-15)
        flat = kl.token_kl(self.POLICY[0, :2], reference[0, :2], old=self.OLD[0, :2], **inputs)
        np.testing.assert_array_equal(flat, got[0, :2])
        np.testing.assert_array_equal(kl.token_kl(self.POLICY, reference, **inputs), [[1, 2, 0]])  # on-policy

    def test_errors_name_the_argument(self) -> None:
        """An unknown level, an `old` of another shape, and a sequence's ratio without sequences are refused."""
        flat = np.zeros(3)
        for changes, message in (
            ({"kl_ratio": "row"}, "`kl_ratio` is 'row'"),
            ({"kl_ratio": "token", "old": np.zeros(2)}, "`old` has shape"),
            ({"kl_ratio": "sequence", "old": flat}, "`lengths` is None"),
        ):
            with pytest.raises(ValueError, match=message):
                kl.token_kl(flat, flat, **changes)
