"""The KL estimators equal mpmath and hand computations, whatever masked slots hold."""

import math
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest

from gates_reference.oracle.kl import full_kl, full_kl_scale, k3, kl_scale, token_kl

POLICY = np.array([[-1.0, -2.0, -3.0], [-1.0, -1.0, -1.0]])
REFERENCE = np.array([[-2.0, -1.0, -3.0], [-3.0, -1.0, -1.0]])  # d = -1 1 0 | -2 0 0
E = math.e


class TestK3:
    """exp(d) - d - 1 without cancellation."""

    @pytest.mark.parametrize(
        "d", [0.0, 1e-300, 1e-8, -1e-8, 1e-2, -0.5, 1.0, 2.0, -2.0, 2.0000001, -2.1, 30.0, -700.0, 709.0]
    )
    def test_agrees_with_mpmath(self, d: float) -> None:
        """Within four ulp of sixty digits on both sides of the switch at 2."""
        with mpmath.workdps(700):
            want = float(mpmath.exp(d) - 1 - mpmath.mpf(d))
        assert abs(float(k3(np.array(d))) - want) <= 4 * np.spacing(want)

    def test_overflow_is_inf(self) -> None:
        """710 overflows exp; an infinite difference is infinitely far, never NaN."""
        np.testing.assert_array_equal(k3(np.array([710.0, math.inf, -math.inf])), [math.inf] * 3)

    def test_nan_stays(self) -> None:
        assert np.isnan(k3(np.array([math.nan]))[0])


class TestTokenKl:
    """Estimators, masks and reductions."""

    @pytest.mark.parametrize(
        ("estimator", "values"),
        [
            # d = -1 1 0 | -2 0 0
            ("k1", [[1.0, -1, 0], [2, 0, 0]]),
            ("k2", [[0.5, 0.5, 0], [2, 0, 0]]),
            ("k3", [[1 / E, E - 2, 0], [E**-2 + 1, 0, 0]]),  # e**-1 + 1 - 1, e - 1 - 1; e**-2 + 2 - 1
        ],
    )
    def test_by_hand(self, estimator: str, values: list[list[float]]) -> None:
        """Each estimator and each reduction of it, over full rows."""
        want = np.array(values)
        for reduction, expected in (("none", want), ("sum", want.sum(axis=1)), ("mean", want.sum(axis=1) / 3)):
            got = token_kl(POLICY, REFERENCE, estimator=estimator, reduction=reduction)
            np.testing.assert_allclose(got, expected, rtol=1e-15)

    @pytest.mark.parametrize("function", [token_kl, kl_scale])
    @pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
    @pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
    def test_mask_lengths_and_ragged_agree(self, function: Any, estimator: str, reduction: str) -> None:
        """A prefix mask, its lengths and the ragged concatenation are the same sequences."""
        lengths = np.array([2, 0, 3])
        policy, reference = np.vstack([POLICY, POLICY[:1]]), np.vstack([REFERENCE, REFERENCE[:1]])
        mask = np.arange(3) < lengths[:, None]
        policy[~mask] = math.nan
        options = {"estimator": estimator, "reduction": reduction}
        by_mask = function(policy, reference, mask=mask, **options)
        np.testing.assert_array_equal(function(policy, reference, lengths=lengths, **options), by_mask)
        ragged = function(policy[mask], reference[mask], lengths=lengths, **options)
        np.testing.assert_array_equal(ragged, by_mask[mask] if reduction == "none" else by_mask)
        assert not np.any(np.isnan(by_mask))
        assert not np.any(by_mask[1])

    def test_scale_sums_absolute_terms(self) -> None:
        """k1 terms 1 -1 0 cancel in the value and not in the scale."""
        options: dict[str, Any] = {"estimator": "k1", "lengths": [3, 1]}
        np.testing.assert_array_equal(token_kl(POLICY, REFERENCE, reduction="sum", **options), [0, 2])
        np.testing.assert_array_equal(kl_scale(POLICY, REFERENCE, reduction="sum", **options), [2, 2])
        np.testing.assert_array_equal(kl_scale(POLICY, REFERENCE, reduction="mean", **options), [2 / 3, 2])

    @pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
    def test_float64_difference_loses_nothing(self, estimator: str) -> None:
        """For -0.1 against -31.7 and such, k2 and k3 are within 4 * 2u of sixty digits: d is not rounded first."""
        rng = np.random.default_rng(8)
        policy, reference = -rng.uniform(0, 40, (2, 1, 50))
        got = token_kl(policy, reference, estimator=estimator, reduction="none")[0]
        with mpmath.workdps(60):
            d = [mpmath.mpf(b) - mpmath.mpf(a) for a, b in zip(policy[0], reference[0], strict=True)]
            want = {"k1": [-x for x in d], "k2": [x**2 / 2 for x in d], "k3": [mpmath.exp(x) - x - 1 for x in d]}[
                estimator
            ]
            assert all(abs(g - w) <= 8 * 2.0**-53 * abs(w) for g, w in zip(got, want, strict=True))

    @pytest.mark.parametrize(
        ("estimator", "values"), [("k1", [[0.5, -0.5, 0], [0.5, 0, 0]]), ("k3", [[1 / E, 0.5, 0], [0.5, 0, 0]])]
    )
    def test_the_clamp_bounds_both_ends_before_the_sum(self, estimator: str, values: list[list[float]]) -> None:
        call = partial(token_kl, POLICY, REFERENCE, estimator=estimator, kl_clamp=0.5)
        np.testing.assert_allclose(call(reduction="none"), values, rtol=1e-15)
        np.testing.assert_allclose(call(reduction="sum"), np.sum(values, axis=1), rtol=1e-15)

    def test_k1_of_equal_policies_is_positive_zero(self) -> None:
        """No sign bit without a difference."""
        assert not np.signbit(token_kl([[-1.0]], [[-1.0]], estimator="k1", reduction="none"))[0, 0]

    def test_nan_in_a_counted_slot_stays(self) -> None:
        assert np.isnan(token_kl([[math.nan]], [[-1.0]], estimator="k3", reduction="sum"))[0]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"estimator": "k4"}, "`estimator` is 'k4'"),
            ({"reduction": "max"}, "`reduction` is 'max'"),
            ({"mask": np.ones((2, 3)), "lengths": [1, 1]}, "both given"),
            ({"mask": np.ones((3, 2))}, r"`mask` has shape \(3, 2\)"),
            ({"mask": np.full((2, 3), 0.5)}, "`mask` holds 0.5"),
            ({"lengths": [1, 4]}, r"`lengths` is 4.*index \(1,\)"),
            ({"lengths": [1]}, "`lengths` has shape"),
            ({"reference": [[1.0]]}, "`reference` has shape"),
            ({"policy": np.ones(3), "reference": np.ones(3), "lengths": [1, 1]}, "sum to 2"),
            ({"policy": np.ones(3), "reference": np.ones(3)}, "`lengths` is None"),
            ({"policy": np.ones(3, complex), "reference": np.ones(3)}, "dtype complex128"),
        ],
    )
    def test_errors(self, change: dict[str, Any], message: str) -> None:
        options: dict[str, Any] = {"estimator": "k3", "reduction": "sum", "policy": POLICY, "reference": REFERENCE}
        for function in (token_kl, kl_scale):
            with pytest.raises(ValueError, match=message):
                function(**options | change)


class TestKlRatio:
    """Estimates times exp(policy - old)."""

    OLD = np.array([[-1.5, -2.0, -2.0], [-2.0, -1.0, -1.0]])  # policy - old = 1/2 0 -1 | 1 0 0

    @pytest.mark.parametrize(
        ("kl_ratio", "lengths", "values"),
        [
            # k1 = 1 -1 0 | 2 0 0
            ("none", [3, 3], [[1, -1, 0], [2, 0, 0]]),
            ("token", [3, 3], [[E**0.5, -1, 0], [2 * E, 0, 0]]),
            ("sequence", [3, 3], [[E ** (-1 / 6), -(E ** (-1 / 6)), 0], [2 * E ** (1 / 3), 0, 0]]),
            ("sequence", [2, 1], [[E**0.25, -(E**0.25), 0], [2 * E, 0, 0]]),
            ("sequence", [0, 2], [[0, 0, 0], [2 * E**0.5, 0, 0]]),
        ],
    )
    def test_by_hand(self, kl_ratio: str, lengths: list[int], values: list[list[float]]) -> None:
        """The token's own ratio, or that of its sequence's mean over the tokens that count."""
        options: dict[str, Any] = {"estimator": "k1", "old": self.OLD, "kl_ratio": kl_ratio, "lengths": lengths}
        want = np.array(values)
        for reduction, expected in (
            ("none", want),
            ("sum", want.sum(1)),
            ("mean", want.sum(1) / np.maximum(lengths, 1)),
        ):
            got = token_kl(POLICY, REFERENCE, reduction=reduction, **options)
            np.testing.assert_allclose(got, expected, rtol=1e-15)
        np.testing.assert_allclose(kl_scale(POLICY, REFERENCE, reduction="none", **options), np.abs(want), rtol=1e-15)

    @pytest.mark.parametrize("kl_ratio", ["none", "token", "sequence"])
    def test_on_policy_is_one(self, kl_ratio: str) -> None:
        """Without `old` the policy sampled itself, and nothing is multiplied."""
        plain = token_kl(POLICY, REFERENCE, estimator="k3", reduction="none")
        for old in (None, POLICY):
            got = token_kl(POLICY, REFERENCE, estimator="k3", reduction="none", old=old, kl_ratio=kl_ratio)
            np.testing.assert_array_equal(got, plain)

    @pytest.mark.parametrize("kl_ratio", ["token", "sequence"])
    def test_ragged_agrees_with_mask_and_ignores_what_is_masked(self, kl_ratio: str) -> None:
        """NaN under the mask of any of the three arrays leaves no trace."""
        lengths = np.array([2, 1])
        mask = np.arange(3) < lengths[:, None]
        policy, reference, old = (np.where(mask, x, math.nan) for x in (POLICY, REFERENCE, self.OLD))
        options: dict[str, Any] = {"estimator": "k3", "reduction": "sum", "kl_ratio": kl_ratio}
        dense = token_kl(policy, reference, mask=mask, old=old, **options)
        assert np.all(dense > 0)
        ragged = token_kl(policy[mask], reference[mask], lengths=lengths, old=old[mask], **options)
        np.testing.assert_array_equal(ragged, dense)

    @pytest.mark.parametrize("kl_ratio", ["token", "sequence"])
    def test_float64_agrees_with_mpmath(self, kl_ratio: str) -> None:
        """Within 8 * 2u of the scale against fifty digits, for log ratios of a few nats."""
        rng = np.random.default_rng(4)
        policy, reference, old = -rng.uniform(0, 6, (3, 1, 40))
        options: dict[str, Any] = {"estimator": "k3", "reduction": "none", "kl_ratio": kl_ratio, "old": old[None, 0]}
        got = token_kl(policy, reference, **options)[0]
        scale = kl_scale(policy, reference, **options)[0]
        with mpmath.workdps(50):
            change = [mpmath.mpf(a) - mpmath.mpf(b) for a, b in zip(policy[0], old[0], strict=True)]
            mean = mpmath.fsum(change) / 40
            for index, distance in enumerate(
                mpmath.mpf(b) - mpmath.mpf(a) for a, b in zip(policy[0], reference[0], strict=True)
            ):
                ratio = mpmath.exp(change[index] if kl_ratio == "token" else mean)
                want = (mpmath.exp(distance) - distance - 1) * ratio
                assert abs(got[index] - want) <= 8 * 2.0**-53 * scale[index]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"kl_ratio": "row"}, "`kl_ratio` is 'row'"),
            ({"old": [[1.0]]}, "`old` has shape"),
            ({"policy": np.ones(3), "reference": np.ones(3), "old": np.ones(3)}, "`lengths` is None"),
        ],
    )
    def test_errors(self, change: dict[str, Any], message: str) -> None:
        options: dict[str, Any] = {"estimator": "k3", "reduction": "none", "policy": POLICY, "reference": REFERENCE}
        for function in (token_kl, kl_scale):
            with pytest.raises(ValueError, match=message):
                function(**options | {"old": self.OLD, "kl_ratio": "sequence"} | change)


class TestFullKl:
    """The sum over the vocabulary."""

    def test_impossible_tokens(self) -> None:
        """A token with p = 0 adds 0 even where q = 0; q = 0 under p > 0 is infinite."""
        with np.errstate(divide="ignore"):
            one, half = np.log([1.0, 0.0]), np.log([0.5, 0.5])
        np.testing.assert_array_equal(full_kl([one, half, one], [half, one, one]), [math.log(2), math.inf, 0])

    def test_a_probability_that_underflows_is_still_possible(self) -> None:
        """exp(-800) is 0 in float64 only: against q = 0 the divergence is infinite, never NaN."""
        assert full_kl([0.0, -800.0], [0.0, -math.inf]) == math.inf

    def test_agrees_with_mpmath(self) -> None:
        """Within 8 * 2u of the sum of absolute terms, for near and far distributions over 3,000 tokens."""
        rng = np.random.default_rng(6)
        logits = rng.normal(0, 4, 3000)
        for spread in (1e-3, 1.0):
            policy, reference = (x - np.log(np.sum(np.exp(x))) for x in (logits, logits + rng.normal(0, spread, 3000)))
            with mpmath.workdps(40):
                pairs = [(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(policy, reference, strict=True)]
                want = mpmath.fsum(mpmath.exp(a) * (a - b) for a, b in pairs)
                size = mpmath.fsum(mpmath.exp(a) * abs(a - b) for a, b in pairs)
                assert abs(full_kl(policy, reference) - want) <= 8 * 2.0**-53 * size
                assert full_kl_scale(policy, reference) == pytest.approx(float(size), rel=1e-12)

    @pytest.mark.parametrize(
        ("policy", "reference", "message"),
        [
            (1.0, 1.0, "vocabulary axis"),
            (np.zeros((2, 0)), np.zeros((2, 0)), "vocabulary axis"),
            ([0.0, 1.0], [0.0], "`reference_logprobs` has shape"),
        ],
        ids=["scalar", "no-token", "shapes"],
    )
    def test_errors(self, policy: Any, reference: Any, message: str) -> None:
        """Without a vocabulary there is nothing to sum."""
        for function in (full_kl, full_kl_scale):
            with pytest.raises(ValueError, match=message):
                function(policy, reference)

    def test_k3_and_k1_are_unbiased(self) -> None:
        """Expectations of k1 and k3 under p are the full KL; k3 with its arguments swapped is not."""
        p, q = np.array([0.7, 0.2, 0.1]), np.array([0.2, 0.5, 0.3])
        d = np.log(q) - np.log(p)
        true = full_kl(np.log(p), np.log(q))
        assert np.sum(p * k3(d)) == pytest.approx(true, rel=1e-14)
        assert np.sum(p * -d) == pytest.approx(true, rel=1e-14)
        assert abs(np.sum(p * k3(-d)) - true) > 0.05
