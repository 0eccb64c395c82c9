"""`rlkernels.normalise_then_sum`: by hand and against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlkernels
from gates_reference.oracle import advantages as oracle

NAN = np.nan
PLAIN: dict[str, Any] = {"group_ddof": 0, "group_eps": 0.0, "batch_ddof": 0, "batch_eps": 0.0}
LIMIT = {np.float32: 4 * 2 * 2.0**-24, np.float64: 8 * 2 * 2.0**-53}


class TestByHand:
    """Small batches that anybody can recompute."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(
        ("rewards", "weights", "want"),
        [
            # columns z: (-1, 1), (1, -1); sums with weights 3 and 1: (-2, 2); over the batch (-1, 1)
            pytest.param([[1, 5], [3, 4]], [3, 1], [-1, 1], id="two-functions"),
            # the second column is constant and adds 0
            pytest.param([[1, 5], [3, 5]], [1, 9], [-1, 1], id="constant-column"),
            # equal and opposite: every sum is 0
            pytest.param([[1, 3], [3, 1]], [1, 1], [0, 0], id="sums-cancel"),
            # first column z (-1, 1, 0), second column z (0, 0, 0): row 2 is scored by the second alone, its sum 0
            # sums -1, 1, 0: std sqrt(2/3)
            pytest.param([[1, 7], [3, 7], [NAN, 7]], [1, 1], [-(1.5**0.5), 1.5**0.5, 0], id="nan-counts-0"),
            # row 2 is unscored: sums -1 and 1
            pytest.param([[1, 7], [3, 7], [NAN, NAN]], [1, 1], [-1, 1, 0], id="all-nan"),
        ],
    )
    def test_value(self, rewards: Any, weights: Any, want: list[float], dtype: Any) -> None:
        """One group that is the whole batch."""
        got = rlkernels.normalise_then_sum(np.array(rewards, dtype), np.array(weights, dtype), len(rewards), **PLAIN)
        assert got.dtype == dtype
        assert got.tolist() == pytest.approx(want, rel=1e-6 if dtype is np.float32 else 1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [2, 4, 6, 8, 32])
@pytest.mark.parametrize("functions", [1, 3])
def test_against_the_oracle(functions: int, size: int, dtype: Any) -> None:
    """Within k * 2u of the scale of both stages, some rewards unscored."""
    generator = np.random.default_rng(size)
    rewards = generator.normal(0.5, 2, (size * 12, functions)).astype(dtype)
    rewards[generator.random(rewards.shape) < 0.1] = NAN
    weights = generator.normal(size=functions).astype(dtype)
    eps = float(dtype(1e-4))
    options: dict[str, Any] = {"group_ddof": 1, "group_eps": eps, "batch_ddof": 1, "batch_eps": eps}
    got = rlkernels.normalise_then_sum(rewards, weights, size, **options)
    want = oracle.normalise_then_sum(rewards, weights, size, **options)
    scale = oracle.normalise_then_sum_scale(rewards, weights, size, **options)
    assert np.all(np.abs(got - want) <= LIMIT[dtype] * scale)


@pytest.mark.parametrize(
    ("rewards", "weights", "options", "message"),
    [
        pytest.param(
            [1.0, 2.0], [1.0], {}, r"`rewards` has shape \(2,\), must be \(rows, reward functions\)", id="1-d"
        ),
        pytest.param([[1.0], [2.0]], [1.0, 1.0], {}, "`weights` has 2 elements, must have 1 like", id="weights"),
        pytest.param([[1.0], [np.inf]], [1.0], {}, r"`rewards\[1, 0\]` is inf", id="inf"),
        pytest.param([[1.0], [2.0]], [NAN], {}, r"`weights\[0\]` is NaN, must be finite", id="nan-weight"),
        pytest.param([[1.0], [2.0], [3.0]], [1.0], {}, "multiple of `group_size` 2", id="not-divisible"),
        pytest.param([[1.0], [2.0]], [1.0], {"batch_ddof": 2}, "`batch_ddof` is 2", id="ddof"),
        pytest.param([[1.0], [2.0]], [1.0], {"group_eps": -1.0}, "`group_eps` is -1", id="eps"),
    ],
)
def test_errors(rewards: Any, weights: Any, options: dict[str, Any], message: str) -> None:
    """A wrong input is named with its value."""
    with pytest.raises(ValueError, match=message):
        rlkernels.normalise_then_sum(np.array(rewards), np.array(weights), 2, **(PLAIN | options))
