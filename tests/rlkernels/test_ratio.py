"""`rlkernels.importance_ratio`, `importance_weights` and `ratio_statistics`: against mpmath and by hand."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import rlkernels

FLOATS = [np.float32, np.float64]
LIMIT = {np.float32: 4 * 2 * 2.0**-24, np.float64: 8 * 2 * 2.0**-53}


def pair(kind: Any, shape: tuple[int, ...] = (3, 40)) -> tuple[Any, Any]:
    """Log-probs whose differences reach from 1e-8 to 30."""
    numbers = np.random.default_rng(5)
    policy = -10 * numbers.random(shape)
    move = 10.0 ** numbers.uniform(-8, 1.5, shape) * numbers.choice([-1, 1], shape)
    return policy.astype(kind), (policy + move).astype(kind)


def exact(policy: Any, old: Any) -> list[Any]:
    """The differences without rounding."""
    return [mpmath.mpf(float(p)) - mpmath.mpf(float(o)) for p, o in zip(policy, old, strict=True)]


class TestImportanceRatio:
    """exp of a difference, of its mean, of its sum."""

    @pytest.mark.parametrize("kind", FLOATS)
    def test_every_level_is_accurate(self, kind: Any) -> None:
        """A token's ratio to k * 2u, a sequence's to that times 1 + u * sum |D|."""
        policy, old = pair(kind)
        tokens = rlkernels.importance_ratio(policy, old, level="token")
        means = rlkernels.importance_ratio(policy, old, level="seq_mean")
        sums = rlkernels.importance_ratio(policy, old, level="seq_sum")
        assert tokens.dtype == means.dtype == sums.dtype == kind
        largest, smallest = float(np.finfo(kind).max), float(np.finfo(kind).tiny)
        with mpmath.workdps(60):
            for row in range(3):
                d = exact(policy[row], old[row])
                total = mpmath.fsum(d)
                wants = [*map(mpmath.exp, d), mpmath.exp(total / 40), mpmath.exp(total)]
                for got, want in zip([*tokens[row], means[row], sums[row]], wants, strict=True):
                    if smallest <= want <= largest:
                        assert abs(float(got) - want) <= LIMIT[kind] * want * (1 + LIMIT[kind] * 1200)

    def test_ends_of_the_range(self) -> None:
        """Overflow is +inf, underflow 0."""
        got = rlkernels.importance_ratio(np.array([0.0, -1e9, 0.0]), np.array([-1e9, 0.0, 0.0]), level="token")
        np.testing.assert_array_equal(got, [np.inf, 0.0, 1.0])

    def test_layouts(self) -> None:
        """No token gives 0, no token in a row 1, one row a scalar."""
        policy, old = pair(np.float64, (2, 3))
        mask = np.array([[True, False, True], [False, False, False]])
        tokens = rlkernels.importance_ratio(policy, np.where(mask, old, np.nan), level="token", mask=mask)
        assert not tokens[~mask].any()
        sums = rlkernels.importance_ratio(policy, old, level="seq_sum", mask=mask)
        assert sums[0] == pytest.approx(tokens[0, 0] * tokens[0, 2])
        assert sums[1] == 1.0
        scalar = rlkernels.importance_ratio(policy[0], old[0], level="seq_sum")
        assert isinstance(scalar, np.float64)


class TestImportanceWeights:
    """Truncated and masked corrections."""

    OLD = np.zeros(4)
    SAMPLING = np.array([-1.0, 1.0, np.nan, -np.log(2.0)])  # ratios e, 1/e, 1, 2

    @pytest.mark.parametrize(
        ("correction", "c_min", "want"),
        [
            ("tis", None, [2.0, np.exp(-1), 1.0, 2.0]),
            ("tis", 0.5, [2.0, 0.5, 1.0, 2.0]),
            ("mis", None, [0.0, np.exp(-1), 1.0, 2.0]),
            ("mis", 1.0, [0.0, 0.0, 1.0, 2.0]),
        ],
    )
    def test_by_hand(self, correction: Any, c_min: float | None, want: list[float]) -> None:
        """The bounds are inside; what was not recorded moves nothing."""
        options: dict[str, Any] = {"correction": correction, "level": "token", "c_min": c_min, "c_max": 2.0}
        got = rlkernels.importance_weights(self.OLD, self.SAMPLING, **options)
        np.testing.assert_allclose(got, want, rtol=1e-15)

    def test_of_a_sequence(self) -> None:
        """Differences are summed first."""
        got = rlkernels.importance_weights(self.OLD, self.SAMPLING, correction="tis", level="seq_sum", c_max=1.5)
        assert got == 1.5  # e / e * 1 * 2

    def test_messages(self) -> None:
        """The argument, what was found, what must be."""
        with pytest.raises(ValueError, match="`c_min` is 3, must be finite, at least 0 and at most `c_max` = 2"):
            rlkernels.importance_weights(self.OLD, self.SAMPLING, correction="tis", level="token", c_min=3.0, c_max=2.0)
        wrong: Any = "seq_mean"
        with pytest.raises(ValueError, match='`level` is "seq_mean", must be one of "token", "seq_sum"'):
            rlkernels.importance_weights(self.OLD, self.SAMPLING, correction="tis", level=wrong, c_max=2.0)


class TestRatioStatistics:
    """Twenty-four numbers."""

    @pytest.mark.parametrize("kind", FLOATS)
    def test_tokens_are_their_definitions(self, kind: Any) -> None:
        """Within k * 2u of the definition in 60 digits."""
        policy, old = pair(kind)
        found = rlkernels.ratio_statistics(policy, old, epsilon_low=0.25, epsilon_high=0.5)
        with mpmath.workdps(60):
            d = exact(policy.flat, old.flat)
            n, r = len(d), [mpmath.exp(x) for x in d]
            sizes = sorted(abs(x) for x in d)
            below, over = divmod(99 * (n - 1), 100)
            want = {
                "mean": mpmath.fsum(r) / n,
                "max_abs": sizes[-1],
                "p99_abs": sizes[below] + (sizes[below + 1] - sizes[below]) * over / 100,
                "k3": mpmath.fsum(mpmath.expm1(x) - x for x in d) / n,
                "chi2": mpmath.fsum(mpmath.expm1(2 * x) for x in d) / n,
                "ess_per_n": mpmath.fsum(r) ** 2 / (n * mpmath.fsum(x * x for x in r)),
                "mult_err": mpmath.fsum(mpmath.exp(abs(x)) for x in d) / n,
                "outside_low": sum(x < 0.75 for x in r) / mpmath.mpf(n),
                "outside_high": sum(x > 1.5 for x in r) / mpmath.mpf(n),
            }
            for name, value in want.items():
                factor = 4 if name == "ess_per_n" else 1
                assert abs(found[name] - value) <= factor * LIMIT[kind] * value, name

    def test_by_hand(self) -> None:
        """Two sequences, the second without tokens; D = 1 and -1 add up to 0."""
        policy, old = np.array([[0.0, -1.0], [0.0, 0.0]]), np.array([[-1.0, 0.0], [np.nan, np.nan]])
        mask = np.array([[True, True], [False, False]])
        found = rlkernels.ratio_statistics(
            policy, old, epsilon_low=0.2, epsilon_high=0.2, advantages=np.array([1.0, -1.0]), mask=mask
        )
        assert (found["outside_low"], found["outside_high"]) == (0.5, 0.5)
        assert (found["clipped_low"], found["clipped_high"]) == (0.0, 0.5)
        assert (found["seq_sum_mean"], found["min_sequence_ratio"], found["max_sequence_ratio"]) == (1.0, 1.0, 1.0)
        assert found["mean"] == pytest.approx(np.cosh(1.0), rel=1e-15)
        assert len(found) == 24

    def test_no_token(self) -> None:
        """There is nothing to take a mean of."""
        with pytest.raises(ValueError, match="no slot of `policy` is a token, must be at least one"):
            rlkernels.ratio_statistics(np.zeros((1, 0)), np.zeros((1, 0)), epsilon_low=0.2, epsilon_high=0.2)
