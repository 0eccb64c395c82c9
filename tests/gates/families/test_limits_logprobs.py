"""Textbook limits of log-probs: forms that authors write lie within them, a lost tile of the vocabulary far beyond."""

from __future__ import annotations

import numpy as np

from gates.families.logprobs import gates, gradient, program
from gates_reference.oracle import logprobs as oracle


def long_rows() -> tuple[np.ndarray, np.ndarray]:
    made = gates.CONCENTRATED.make(np.random.default_rng(0))
    return np.asarray(made["logits"]), np.asarray(made["ids"])


def test_a_lost_tile_of_a_long_row_is_another_formula() -> None:
    """With the mass on few tokens a float32 sum of 151,936 terms is good enough to see it."""
    logits, ids = long_rows()
    limits = program.selective_log_softmax(logits=logits, ids=ids, temperature=1.0)["logprobs"]
    whole = oracle.selective_log_softmax(logits, ids, temperature=1.0)
    cut = oracle.selective_log_softmax(logits[:, : 1024 * (logits.shape[1] // 1024)], ids * 0, temperature=1.0)
    lost = np.abs(cut - oracle.selective_log_softmax(logits, ids * 0, temperature=1.0))
    assert limits.max() < 1e-4 * np.maximum(1.0, np.abs(whole)).max()
    assert (lost > 100 * limits).all()


def test_a_running_sum_of_a_long_row_is_within() -> None:
    """One float32 addition after the other, the worst order there is."""
    logits, ids = long_rows()
    shifted = logits - logits.max(axis=1, keepdims=True)
    sums = np.cumsum(np.exp(shifted), axis=1)[:, -1]
    found = np.take_along_axis(shifted, ids[:, None], axis=1)[:, 0] - np.log(sums)
    wanted = oracle.selective_log_softmax(logits, ids, temperature=1.0)
    limits = program.selective_log_softmax(logits=logits, ids=ids, temperature=1.0)["logprobs"]
    assert found.dtype == np.float32
    assert (np.abs(found - wanted) <= limits).all()


def test_a_token_that_cannot_be_drawn_is_exact() -> None:
    """Its log-prob is −∞ and its gradient 0, without any room."""
    logits = np.float32([[0.5, -np.inf, 1.5, 0.0]])
    limits = program.selective_log_softmax(logits=logits, ids=np.array([1]), temperature=0.7)["logprobs"]
    slope = gradient.selective_log_softmax_backward(
        logits=logits,
        ids=np.array([2]),
        grad_logprobs=np.float32([1.0]),
        temperature=0.7,
        grad_entropy=np.float32([0.5]),
    )["gradient"]
    assert limits.tolist() == [0.0]
    assert slope[0, 1] == 0.0
    assert (slope[0, [0, 2, 3]] > 0.0).all()


def test_ignored_ids_are_exact() -> None:
    """And rows of nothing else are not read."""
    logits = np.array([[np.nan, np.nan], [0.0, 1.0]], np.float32)
    ids = np.array([[-100, -100], [1, -100]])
    limits = program.with_entropy(logits=logits, ids=ids, temperature=1.0, ignore_index=-100)
    assert limits["entropy"][0] == 0.0
    assert limits["entropy"][1] > 0.0
    assert limits["logprobs"][0].tolist() == [0.0, 0.0]
    assert limits["logprobs"][1, 1] == 0.0


def test_a_position_of_ignored_ids_alone_gets_no_gradient() -> None:
    """Where it is all that is given, too."""
    logits, ids = np.zeros((1, 8), np.float32), np.array([[-100]])
    limits = gradient.selective_log_softmax_backward(
        logits=logits,
        ids=ids,
        grad_logprobs=np.ones((1, 1), np.float32),
        temperature=1.0,
        grad_entropy=None,
        ignore_index=-100,
    )
    assert limits["gradient"].tolist() == np.zeros((1, 8)).tolist()
