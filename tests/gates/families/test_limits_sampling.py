"""Textbook limits of filters: where rounding may decide a token no claim is made of its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.families.sampling import cases, program
from gates_reference.oracle import sampling as oracle


def masses(*p: float) -> np.ndarray:
    return np.log(np.array([p])).astype(np.float32)


def limits(logits: np.ndarray, order: str = "hf", **filters: Any) -> np.ndarray:
    return np.asarray(program.filtered_logprobs(logits=logits, **{**cases.OFF, "order": order, **filters})["logprobs"])


@pytest.mark.parametrize("order", oracle.ORDERS)
def test_a_running_sum_at_top_p_decides_nothing(order: str) -> None:
    """Half the mass before a token, and a top-p of a half: float32 keeps it or not."""
    assert np.isinf(limits(masses(0.25, 0.25, 0.3, 0.2), order, top_p=0.55)).all()
    assert np.isfinite(limits(masses(0.25, 0.25, 0.3, 0.2), order, top_p=0.6)).all()


def test_a_share_of_the_largest_at_min_p() -> None:
    """The largest itself is never undecided, nor is what is equal to it."""
    assert np.isinf(limits(masses(0.4, 0.4 * 0.625, 0.35), min_p=0.625)).all()
    assert np.isfinite(limits(masses(0.4, 0.4, 0.2), min_p=1.0)).all()


def test_two_logits_that_the_temperature_may_round_to_one() -> None:
    """The last that top-k keeps, and its neighbour."""
    near = np.float32([[1.0, 0.3, np.nextafter(np.float32(0.3), np.float32(0)), -1.0]])
    assert np.isinf(limits(near, top_k=2, temperature=0.7)).all()
    assert np.isfinite(limits(near, top_k=3, temperature=0.7)).all()


def test_the_threshold_of_xtc() -> None:
    """Only where the coin lets it act."""
    rows = np.concatenate([masses(0.5, 0.25, 0.25 - 0.125, 0.125)] * 2)
    xtc = {"xtc_probability": 0.5, "xtc_threshold": 0.125, "xtc_coin": np.array([0.2, 0.9])}
    assert np.isinf(limits(rows, **xtc)).any(axis=1).tolist() == [True, False]


def test_a_float32_program_lies_within() -> None:
    """And float64 logits have limits a billion times smaller."""
    rng = np.random.default_rng(3)
    logits = cases.distinct(rng, 4, 400, "float32")
    wanted = oracle.filtered_logprobs(logits, **cases.OFF, order="hf")
    shifted = logits - logits.max(axis=1, keepdims=True)
    found = shifted - np.log(np.cumsum(np.exp(shifted), axis=1)[:, -1:])
    assert (np.abs(found - wanted) <= limits(logits)).all()
    assert (limits(logits.astype(np.float64)) < 1e-8 * limits(logits)).all()


def test_sums_of_a_draw_have_limits_of_their_own() -> None:
    """Those of a running sum in the order of the ids, none where a filter is undecided."""
    found = program.sample_tokens(logits=masses(0.5, 0.3, 0.2), **{**cases.OFF, "order": "hf"})
    assert (found["sums"] > 2.0**-24).all()
    assert (found["sums"] < 1e-5).all()
    open_ = program.sample_tokens(logits=masses(0.25, 0.25, 0.3, 0.2), **{**cases.OFF, "order": "hf", "top_p": 0.55})
    assert np.isinf(open_["sums"]).all()
