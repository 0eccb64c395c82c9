"""The helpers of the rollout gates: the chi-square of the draws, and histories and coins of single draws."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from gates.families.rollout.equivalence import of_each_draw
from gates.families.rollout.gates.draws import _chi_square
from gates.families.rollout.runs import sampler
from gates_reference.oracle import sampling


class TestChiSquare:
    """Counts against expectations."""

    def test_by_hand(self) -> None:
        """Counts (12, 8) where (10, 10) are expected: chi-square 0.8 at one degree of freedom, (0.8^(1/3) - 7/9) / sqrt(2/9)."""
        sigmas, bins = _chi_square(np.array([12, 8]), np.array([10.0, 10.0]))
        assert (sigmas, bins) == (pytest.approx((0.8 ** (1 / 3) - 7 / 9) / (2 / 9) ** 0.5), 2)

    @pytest.mark.parametrize("freedom", [4, 27, 195])
    def test_five_standard_deviations_are_as_rare_as_of_a_normal_number(self, freedom: int) -> None:
        """Of the chi-square 2.9e-7 lies above what the gate calls five; a hundred times more would be false alarms."""
        wanted = np.full(freedom + 1, 100.0)
        rare = mpmath.erfc(5 / mpmath.sqrt(2)) / 2
        start = float(freedom + 7 * (2 * freedom) ** 0.5)
        tail = mpmath.findroot(
            lambda x: mpmath.log(mpmath.gammainc(freedom / 2, x / 2, regularized=True)) - mpmath.log(rare), start
        )
        square = float(tail)
        counts = wanted.copy()
        counts[:2] += np.array([1.0, -1.0]) * (square * 100.0 / 2) ** 0.5
        assert _chi_square(counts, wanted)[0] == pytest.approx(5.0, abs=0.2)

    def test_rare_tokens_share_a_bin(self) -> None:
        """Tokens that expect few draws are counted together, or not at all if they still expect few."""
        assert _chi_square(np.array([50, 50, 4, 5, 6]), np.array([50.0, 50.0, 5.0, 5.0, 5.0]))[1] == 3
        assert _chi_square(np.array([50, 50, 1]), np.array([50.0, 50.0, 1.0]))[1] == 2

    @pytest.mark.parametrize(("change", "seen"), [(0.0, False), (0.02, True)], ids=["honest", "off-by-two-percent"])
    def test_hundred_thousand_draws(self, change: float, seen: bool) -> None:
        """A fair sample of 20 tokens stays below five standard deviations; a token moved by 2% of all draws does not."""
        p = np.full(20, 0.05)
        drawn = p + change * (np.arange(20) == 0) - change * (np.arange(20) == 1)
        counts = np.random.default_rng(1).multinomial(100_000, drawn)
        assert (_chi_square(counts, 100_000 * p)[0] > 5.0) == seen


class TestEachDraw:
    """What the oracle needs to know of single draws."""

    def test_history_and_coin(self) -> None:
        """The history is the prompt and what the row has said before the draw; the coin has the draw's own counter."""
        run = {
            "rows": np.array([[0, 0], [1, 3]]),
            "prompt_tokens": [np.array([5, 6]), np.array([7])],
            "tokens": np.array([[11, 12, 13], [21, 22, -1]]),
        }
        choice = of_each_draw(
            sampler(1.0, 1.0, xtc_probability=0.5, repetition_penalty=1.2),
            run,
            np.array([0, 1]),
            np.array([2, 1]),
            9,
            4,
        )
        assert np.asarray(choice["history"]).tolist() == [[5, 6, 11, 12], [7, 21, -1, -1]]
        assert np.asarray(choice["xtc_coin"]).tolist() == sampling.xtc_coins(9, 4, [0, 1], [0, 3], [2, 1]).tolist()

    def test_nothing_where_nothing_is_needed(self) -> None:
        """Without XTC and a penalty there is neither."""
        run = {"rows": np.array([[0, 0]]), "prompt_tokens": [np.array([5])], "tokens": np.array([[1]])}
        choice = of_each_draw(sampler(1.0, 1.0), run, np.array([0]), np.array([0]), 9, 4)
        assert choice["history"] is None
        assert choice["xtc_coin"] is None
