"""The timing module measures factors, refuses wrong results, and decides only with certainty."""

import time

import numpy as np
import pytest

from benches import timing


class TestVerify:
    """Verification of results."""

    @pytest.mark.parametrize(
        "got", [[1.0, 2.1], [1.0, np.nan], [1.0], [1.0, np.inf]], ids=["wrong", "nan", "shape", "infinite"]
    )
    def test_a_wrong_result_does_not_hold(self, got: list[float]) -> None:
        """A wrong value, a NaN, another shape, infinity."""
        item = timing.within("q", np.array(got), np.array([1.0, 2.0]), 0.01, "by hand")
        assert not item.holds
        with pytest.raises(AssertionError, match="q, error over limit"):
            timing.require([item])

    def test_a_correct_result_holds(self) -> None:
        """An error of half a limit, and equal infinities."""
        evidence = timing.within("q", np.array([1.005, -np.inf]), np.array([1.0, -np.inf]), 0.01, "by hand")
        assert evidence.holds
        assert evidence.observed == pytest.approx(0.5)
        timing.require([evidence])


class TestInTurns:
    """Interleaved timing."""

    @pytest.mark.alone
    def test_a_large_factor_is_measured(self) -> None:
        """Twenty times the work takes more than three times as long, even on a busy machine."""
        names = {"short": range(2_000), "long": range(40_000)}
        short, long = timing.in_turns(
            ["sum(short)", "sum(long)"], [names, names], rounds=14, budget_s=20, sample_s=1e-4
        )
        ratio = timing.paired_ratio(long.seconds, short.seconds)
        assert ratio.low <= ratio.value <= ratio.high
        assert ratio.value > 3

    def test_two_rounds_are_abba(self) -> None:
        """A drift of the machine affects both sides equally."""
        order: list[str] = []
        names = {"order": order, "sleep": time.sleep}
        statements = ["order.append('A'); sleep(0.06)", "order.append('B'); sleep(0.06)"]
        first, second = timing.in_turns(statements, [names, names], rounds=2, budget_s=9, sample_s=1e-9)
        assert "".join(order[-4:]) == "ABBA"
        assert first.seconds.size == second.seconds.size == 2

    def test_the_budget_ends_timing_after_the_minimum_of_rounds(self) -> None:
        """Both sides have the same even number of rounds."""
        sides = timing.in_turns(["1", "2"], [{}, {}], rounds=50, budget_s=0.0, fewest=4, sample_s=1e-5)
        assert [side.seconds.size for side in sides] == [4, 4]

    def test_a_slow_statement_has_no_warm_up(self) -> None:
        """It is called twice before its rounds, without warm-up calls."""
        called: list[float] = []
        names = {"called": called, "sleep": time.sleep}
        timing.in_turns(["called.append(1); sleep(0.51)"], [names], rounds=2, budget_s=0.0)
        assert len(called) == 4

    def test_a_sample_lasts_long_enough(self) -> None:
        """Quick statements are called many times."""
        (side,) = timing.in_turns(["sum(x)"], [{"x": range(100)}], rounds=4, budget_s=9, sample_s=1e-3)
        assert side.calls > 100

    def test_a_planted_slowdown_adds_calls(self) -> None:
        """Twenty-one calls where twenty are counted."""
        count = [0]

        def call() -> None:
            count[0] += 1
            time.sleep(1e-4)

        plain, slowed = timing.alone(call, 0.05), timing.alone(call, 0.05, extra=0.5)
        assert slowed > 1.2 * plain


class TestInterval:
    """Ratios of pairs."""

    def test_the_interval_is_reproducible_and_covers_the_true_ratio(self) -> None:
        """Samples around 2 and 1 give a ratio of 2; equal samples give equal intervals."""
        generator = np.random.default_rng(0)
        over, under = 2 + 0.1 * generator.normal(size=50), 1 + 0.05 * generator.normal(size=50)
        ratio = timing.paired_ratio(over, under)
        assert ratio.low < 2 < ratio.high
        assert ratio.high - ratio.low < 0.2
        assert timing.paired_ratio(over, under) == ratio

    def test_a_drift_of_both_sides_cancels(self) -> None:
        """The samples of a pair are taken together, so the interval stays narrow although times double in between."""
        drift = np.linspace(1, 2, 40)
        ratio = timing.paired_ratio(1.1 * drift, drift)
        assert (ratio.low, ratio.high) == pytest.approx((1.1, 1.1))

    def test_one_pair_gives_an_unbounded_interval(self) -> None:
        ratio = timing.paired_ratio([2.0], [1.0])
        assert (ratio.low, ratio.high) == (0.0, np.inf)
        assert not ratio.excludes_one()

    @pytest.mark.parametrize(
        ("ratio", "control", "word"),
        [
            ((1.05, 1.03, 1.07), (1.0, 0.99, 1.01), "slower"),
            ((0.90, 0.88, 0.93), (1.0, 0.99, 1.01), "faster"),
            ((1.05, 0.99, 1.11), (1.0, 0.99, 1.01), "same"),
            ((1.015, 1.01, 1.02), (1.0, 0.99, 1.01), "same"),
            ((1.05, 1.03, 1.07), (1.04, 1.02, 1.06), "undecided"),
        ],
        ids=["slower", "faster", "one is inside", "below the floor", "the control moves too"],
    )
    def test_verdicts(self, ratio: tuple[float, ...], control: tuple[float, ...], word: str) -> None:
        """An interval without 1, an effect above the floor of 2%, and a control that shows none."""
        assert timing.verdict(timing.Ratio(*ratio), timing.Ratio(*control), 0.02) == word

    def test_verdicts_are_symmetric(self) -> None:
        """A ratio and its inverse get mirrored verdicts."""
        still = timing.Ratio(1.0, 0.99, 1.01)
        for value in (1.019, 1.021):
            up = timing.verdict(timing.Ratio(value, value, value), still, 0.02)
            down = timing.verdict(timing.Ratio(1 / value, 1 / value, 1 / value), still, 0.02)
            assert (up, down) in {("same", "same"), ("slower", "faster")}
