"""`rlkernels.gae`: numbers by hand, long rows, inputs that are refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import rlkernels

REWARDS, VALUES = np.array([[1.0, 0.0, 2.0]]), np.array([[0.5, 1.0, 0.25]])


def test_three_tokens_by_hand() -> None:
    """δ = (1 + 0.5 − 0.5, 0.125 − 1, 2 + 2 − 0.25), each with a quarter of the next estimate."""
    found = rlkernels.gae(REWARDS, VALUES, gamma=0.5, lam=0.5, bootstrap=np.array([4.0]))
    assert found.tolist() == [[1.015625, 0.0625, 3.75]]


def test_a_terminal_token_reads_nothing_after_it() -> None:
    """Neither the value nor the estimate that follows."""
    ends = np.array([[False, True, False]])
    found = rlkernels.gae(REWARDS, VALUES, gamma=0.5, lam=0.5, bootstrap=np.array([4.0]), terminal=ends)
    assert found.tolist() == [[0.75, -1.0, 3.75]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masked_slots_are_skipped(dtype: type) -> None:
    """The same as the row without them, whatever they hold."""
    rng = np.random.default_rng(5)
    rewards, values = rng.normal(size=(2, 7, 40)).astype(dtype)
    mask = rng.random((7, 40)) > 0.4
    holes = np.where(mask, rewards, np.nan), np.where(mask, values, np.inf)
    found = rlkernels.gae(*(x.astype(dtype) for x in holes), gamma=0.9, lam=0.8, mask=mask)
    flat = rlkernels.gae(rewards[mask], values[mask], gamma=0.9, lam=0.8, lengths=mask.sum(axis=1))
    assert np.array_equal(found[mask], flat)
    assert np.all(found[~mask] == 0.0)


def test_the_error_of_a_long_row_does_not_grow() -> None:
    """100,000 tokens with γ = λ = 1 are sums of all that follows; compared with exact rational numbers."""
    rng = np.random.default_rng(6)
    rewards, values = rng.normal(size=(2, 1, 100_000))
    found = rlkernels.gae(rewards, values, gamma=1.0, lam=1.0)
    exact = sum(map(Fraction, rewards[0]), Fraction(0)) - Fraction(values[0, 0])
    assert found[0, 0] == float(exact)


def test_threads_change_no_bit() -> None:
    """Rows are shared out among threads."""
    rng = np.random.default_rng(7)
    rewards, values = rng.normal(size=(2, 300, 400))
    before = rlkernels.set_threads(1)
    try:
        alone = rlkernels.gae(rewards, values, gamma=0.99, lam=0.95)
        rlkernels.set_threads(3)
        assert np.array_equal(alone, rlkernels.gae(rewards, values, gamma=0.99, lam=0.95))
    finally:
        rlkernels.set_threads(before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"gamma": 1.5}, "`gamma` is 1.5, must be between 0 and 1", id="gamma"),
        pytest.param({"lam": -0.5}, "`lam` is -0.5, must be between 0 and 1", id="lam"),
        pytest.param({"gamma": float("nan")}, "`gamma` is NaN, must be between 0 and 1", id="nan"),
        pytest.param({"bootstrap": np.zeros(2)}, "`bootstrap` has 2 elements", id="bootstrap"),
        pytest.param({"values": np.zeros((1, 2))}, "`values` has shape", id="values"),
        pytest.param({"mask": np.ones((1, 3), bool), "lengths": np.array([3])}, "at most one", id="both"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    """With a sentence that names the argument."""
    given = {"rewards": REWARDS, "values": VALUES, "gamma": 0.9, "lam": 0.9, **changes}
    with pytest.raises(ValueError, match=message):
        rlkernels.gae(**given)


def test_types_that_do_not_fit_are_refused() -> None:
    """Values of another float type, and terminal flags that are no truths."""
    with pytest.raises(TypeError):
        rlkernels.gae(REWARDS, VALUES.astype(np.float32), gamma=0.9, lam=0.9)
    with pytest.raises(ValueError, match=r"`terminal` holds 0\.5, must hold 0 and 1 only"):
        rlkernels.gae(REWARDS, VALUES, gamma=0.9, lam=0.9, terminal=np.full((1, 3), 0.5))
