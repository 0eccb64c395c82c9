"""A mutant that is an edit of a program computes the edited definition in the dtype of the op, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.families.advantages.program import GROUP
from gates.families.edited import edited
from gates.families.logprobs import gradient
from gates.families.logprobs.program import PROGRAM as LOGPROBS
from gates.families.preference.program import PAIRS
from gates.subjects.numpy_baseline import advantages, logprobs, preference
from gates_reference.oracle import advantages as oracle

RNG = np.random.default_rng(5)
TRL: dict[str, Any] = {"group_size": 4, "scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}
REWARDS = RNG.normal(size=12).astype(np.float32)
DDOF_0 = edited(GROUP, "group z-score with ddof 0", "batch z-score with ddof 0")(advantages.group_advantages)


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_the_edit_that_acts(scale: str) -> None:
    """Of two edits the one for the scale that is asked is made."""
    found = DDOF_0(rewards=REWARDS, **{**TRL, "scale": scale})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, oracle.group_advantages(REWARDS, **{**TRL, "scale": scale, "ddof": 0}), rtol=1e-6)


def test_an_edit_that_does_not_act_leaves_the_host() -> None:
    """Where ddof 0 is asked for, no edit makes it 0: the host's own result is returned."""
    asked = {**TRL, "ddof": 0}
    assert np.array_equal(DDOF_0(REWARDS, **asked), advantages.group_advantages(REWARDS, **asked))


def test_a_gradient() -> None:
    """It is the derivative of the edited loss."""
    policy, reference = (-RNG.gamma(1.5, 0.8, (4, 5)).astype(np.float32) for _ in range(2))
    asked = {"policy": policy, "reference": reference, "mask": np.ones((4, 5), bool), "loss": "dpo", "beta": 0.5}
    asked |= {"label_smoothing": 0.0, "lengths": None, "penalty": None, "margin": None, "nll": None}
    found = edited(PAIRS, "chosen and rejected swapped")(preference.preference_loss)(**asked)
    pairs = [1, 0, 3, 2]
    loss, slopes = preference.preference_loss(**{**asked, "policy": policy[pairs], "reference": reference[pairs]})
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-6)
    np.testing.assert_allclose(found["gradient"], slopes[pairs], rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_results_have_the_dtype_of_the_op(dtype: type) -> None:
    """Log-probs of half logits are float32; a gradient is like the logits."""
    logits, ids = RNG.normal(size=(2, 4)).astype(dtype), np.array([1, 3])
    wide = np.promote_types(dtype, np.float32)
    call: dict[str, Any] = {"logits": logits, "ids": ids, "temperature": 2.0}
    found = edited(LOGPROBS, "−log p (the cross-entropy)")(logprobs.selective_log_softmax)(**call)
    assert (found.dtype, np.allclose(found, -logprobs.selective_log_softmax(**call), rtol=1e-3)) == (wide, True)
    upstream: dict[str, Any] = {"grad_logprobs": np.ones(2, wide), "grad_entropy": None}
    negated = edited(gradient.PROGRAM, "the gradient with the wrong sign")(logprobs.selective_log_softmax_backward)
    wanted = -logprobs.selective_log_softmax_backward(**call, **upstream)
    found = negated(**call, **upstream)
    assert (found.dtype, np.allclose(found, wanted, atol=1e-3)) == (dtype, True)
