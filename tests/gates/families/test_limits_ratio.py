"""Textbook limits of ratios: what a bound leaves open, what overflows, and how far another formula lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.families.ratio import program
from gates.families.ratio.statistics import ratio_statistics as statistics_limits
from gates_reference.oracle.statistics import ratio_statistics

U = 2.0**-24
MIS: dict[str, Any] = {"correction": "mis", "level": "token", "c_min": None}


def pair(*differences: float) -> tuple[np.ndarray, np.ndarray]:
    old = np.full((1, len(differences)), -1.0, np.float32)
    return old + np.array([differences], np.float32), old


def ratio_limits(policy: np.ndarray, old: np.ndarray, **settings: Any) -> np.ndarray:
    return np.asarray(program.importance_ratio(policy=policy, old=old, **settings)["ratio"])


def weights_limits(old: np.ndarray, sampling: np.ndarray, **settings: Any) -> np.ndarray:
    return np.asarray(program.importance_weights(old=old, sampling=sampling, **settings)["weights"])


class TestRatio:
    """exp of a difference."""

    def test_a_ratio_of_one_is_exact(self) -> None:
        """Equal log-probs differ by 0 and exp(0) is 1 in every library; another token has an error of some ulp."""
        exact, rounded = ratio_limits(*pair(0.0, 0.5), level="token")[0]
        assert exact < 1e-15
        assert 2 * 8 * U < rounded / np.exp(0.5) < 32 * U

    def test_what_overflows_has_no_limit(self) -> None:
        """float32 ends below e^89, and a product may overflow where no token does."""
        policy, old = np.zeros((1, 2), np.float32), np.full((1, 2), -60.0, np.float32)
        assert np.all(np.isfinite(ratio_limits(policy, old, level="token")))
        assert np.all(np.isinf(ratio_limits(policy, old, level="seq_sum")))

    def test_masked_slots_are_exactly_zero(self) -> None:
        """And NaN in them is not read."""
        policy, old = pair(0.1, np.nan)
        limit = ratio_limits(policy, old, level="token", mask=np.array([[True, False]]))
        assert limit[0, 0] > 0.0
        assert limit[0, 1] == 0.0


class TestWeights:
    """Bounds of MIS."""

    def test_at_a_bound_zero_and_the_ratio_are_admitted(self) -> None:
        """A difference of ln 1.5 is within its own error of the bound 1.5; 1 at the bound 1 is exact and must be kept."""
        near = float(np.log(1.5))
        open_, clear = weights_limits(*pair(near, 0.3), **MIS, c_max=1.5)[0]
        assert open_ > 1.5
        assert clear < 1e-5
        (kept,) = weights_limits(*pair(0.0), **MIS, c_max=1.0)[0]
        assert kept < 1e-15

    def test_a_clamped_ratio_is_the_bound(self) -> None:
        """TIS returns c_max itself, which a float32 program may have rounded."""
        (limit,) = weights_limits(*pair(3.0), **{**MIS, "correction": "tis"}, c_max=1.1)[0]
        assert 0.0 < limit < 8 * U


class TestStatistics:
    """Each by its name."""

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_every_statistic_has_a_limit_and_other_formulas_lie_outside(self, dtype: str) -> None:
        """k3 of −D, a nearest-rank percentile and χ² without its −1 are 100 limits away or more."""
        rng = np.random.default_rng(4)
        old = -rng.gamma(1.5, 0.8, (8, 31)).astype(dtype)
        policy = (old + rng.normal(0.0, 0.3, old.shape)).astype(dtype)
        inputs: dict[str, Any] = {"epsilon_low": 0.2, "epsilon_high": 0.28, "advantages": np.linspace(-1.0, 1.0, 8)}
        limit = statistics_limits(policy=policy, behaviour=old, **inputs)
        wanted = ratio_statistics(policy, old, **inputs)
        assert set(limit) == set(wanted)
        assert all(np.isfinite(x) and x.shape == () for x in limit.values())
        d = policy.astype(np.float64) - old
        others = {
            "k3": np.mean(np.exp(-d) + d - 1.0),
            "p99_abs": np.sort(np.abs(d).reshape(-1))[int(0.99 * d.size)],
            "chi2": np.mean(np.exp(2.0 * d)),
        }
        for name, other in others.items():
            assert abs(other - wanted[name]) > 100.0 * limit[name]

    def test_a_ratio_near_the_clip_leaves_its_share_open(self) -> None:
        """One of four tokens lies within its own error of 1.25: the share may be 0 or a quarter."""
        policy, old = pair(float(np.log(1.25)), 0.1, 0.1, 0.1)
        inputs: dict[str, Any] = {"epsilon_low": 0.2, "epsilon_high": 0.25, "advantages": None}
        limit = statistics_limits(policy=policy, behaviour=old, **inputs)
        assert limit["outside_high"] >= 0.25
        assert limit["outside_low"] < 1e-6
