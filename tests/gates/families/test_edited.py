"""Mutations that are edits: the op of the host computes its program with the edit, where the edit acts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.families.edited import edited
from gates.families.kl.program import TOKEN
from gates.families.logprobs import gradient
from gates.families.logprobs.program import PROGRAM as LOGPROBS
from gates.subjects.numpy_baseline import kl, logprobs

CLAMPED_BELOW = edited(TOKEN, "the clamp bounds from below only")(kl.token_kl)
RNG = np.random.default_rng(5)
POLICY, REFERENCE = (-RNG.gamma(1.5, 3.0, (3, 5)).astype(np.float32) for _ in range(2))
CALL: dict[str, Any] = {"policy": POLICY, "reference": REFERENCE, "estimator": "k3", "reduction": "none"}


def test_an_edit_acts() -> None:
    """Where the clamp is 2, larger estimates stay."""
    free, found = kl.token_kl(**CALL), CLAMPED_BELOW(**CALL, kl_ratio="none", kl_clamp=2.0)
    assert found.dtype == np.float32
    assert free.max() > 2.0
    assert np.allclose(found, free, rtol=1e-6)


def test_an_edit_that_does_not_act_leaves_the_host() -> None:
    """Without a clamp there is none to bound from below."""
    assert np.array_equal(CLAMPED_BELOW(**CALL, kl_ratio="none"), kl.token_kl(**CALL))


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
