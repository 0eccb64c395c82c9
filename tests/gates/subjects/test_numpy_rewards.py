"""The NumPy baseline's advantage over several reward functions, on numbers worked by hand."""

import math
from typing import Any

import numpy as np
import pytest

from gates.subjects.numpy_baseline import advantages as subject

NAN = math.nan
PLAIN: dict[str, Any] = {"group_ddof": 0, "group_eps": 0.0, "batch_ddof": 0, "batch_eps": 0.0}


def advantages(rewards: Any, weights: list[float], group_size: int, dtype: str = "float64", **stages: Any) -> Any:
    table = np.array(rewards, dtype)
    return subject.normalise_then_sum(table, np.array(weights, dtype), group_size, **{**PLAIN, **stages})


class TestNormaliseThenSum:
    """Each function in its group, then the sum over the batch."""

    def test_units_do_not_matter(self) -> None:
        """Scores of 0, 1 and of 0, 1000 count alike: z of -1 1 | 1 -1 in both, sums -2 2 | 2 -2, z again."""
        got = advantages([[0, 0], [1, 1000], [5, 0.2], [4, 0.1]], [1.0, 1.0], 2)
        np.testing.assert_allclose(got, [-1, 1, 1, -1], rtol=1e-14)

    def test_hand_worked_stages(self) -> None:
        """One function, groups 1 3 | 0 8: ε 1 and ddof 0 give ∓1/2 | ∓4/5; their squares sum to 1.78."""
        squares = 2 * (0.25 + 0.64)
        want = np.array([-0.5, 0.5, -0.8, 0.8]) / (math.sqrt(squares / 3) + 0.5)
        got = advantages([[1], [3], [0], [8]], [1.0], 2, group_eps=1.0, batch_ddof=1, batch_eps=0.5)
        np.testing.assert_allclose(got, want, rtol=1e-14)

    def test_unscored_rewards_are_left_out(self) -> None:
        """A NaN is 0 in the sum: rows -1 1 | NaN of one function with 2 1 0 of the other; a row of NaN is out."""
        got = advantages([[1, 5], [3, 5], [NAN, NAN], [NAN, 5]], [1.0, 1.0], 4)
        # z of the first: -1 1 - -; the second is constant: 0. Sums -1 1 (out) 0: mean 0, std sqrt(2/3)
        np.testing.assert_allclose(got, np.array([-1, 1, 0, 0]) / math.sqrt(2 / 3), rtol=1e-14)

    def test_equal_sums_are_zero(self) -> None:
        """Two contradicting functions cancel."""
        assert advantages([[0, 1], [1, 0]], [1.0, 1.0], 2).tolist() == [0, 0]

    def test_dtype_is_the_rewards(self) -> None:
        """Float32 rewards give float32 advantages."""
        assert advantages([[0], [1]], [1.0], 2, "float32").dtype == np.float32

    @pytest.mark.parametrize(
        ("rewards", "weights", "group_size", "stages", "message"),
        [
            ([1.0, 2.0], [1.0], 2, {}, "`rewards` has shape"),
            ([[1.0], [2.0]], [1.0, 1.0], 2, {}, "`weights` has shape"),
            ([[1.0], [2.0]], [NAN], 2, {}, "`weights` is"),
            ([[1.0], [2.0]], [1.0], 3, {}, "group_size 3"),
            ([[1.0], [math.inf]], [1.0], 2, {}, "`rewards` holds an infinity"),
            ([[1.0], [2.0]], [1.0], 2, {"group_ddof": 2}, "`group_ddof` is 2"),
            ([[1.0], [2.0]], [1.0], 2, {"batch_eps": -1.0}, "`batch_eps` is -1.0"),
        ],
    )
    def test_errors_name_the_argument(
        self, rewards: Any, weights: list[float], group_size: int, stages: dict[str, Any], message: str
    ) -> None:
        """Invalid arguments raise a ValueError."""
        with pytest.raises(ValueError, match=message):
            advantages(rewards, weights, group_size, **stages)
