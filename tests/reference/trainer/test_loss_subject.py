"""The trainer's losses as ops, where no quick case asks: a large vocabulary, and what is refused."""

from typing import Any

import numpy as np
import pytest

from gates.subjects.mlx_trainer import loss as subject

CONSTANTS: dict[str, Any] = {"algorithm": "grpo", "epsilon_low": 0.25, "epsilon_high": 0.25, "delta": None, "beta": 0.0}
CONSTANTS |= {"kl_ratio": "none", "kl_estimator": "k3", "old": None, "reference": None}


def test_large_vocabulary_is_accurate() -> None:
    """At V = 152,000 the log-probs are right to 2e-6 nats, where MLX's own logsumexp is off by more than 1e-5."""
    logits = np.random.default_rng(2).normal(0, 1, (1, 3, 152_000)).astype(np.float32)
    text = {"ids": np.array([[1, 2, 3]], np.int32), "prompt_lengths": np.array([1]), "lengths": np.array([2])}
    step = {"advantages": np.ones(1, np.float32), "temperature": 1.0}
    logprobs = subject.loss_from_logits(logits=logits, **text, **step, **CONSTANTS)["logprobs"]
    exact = logits[0].astype(np.float64)
    want = [exact[0, 2] - np.logaddexp.reduce(exact[0]), exact[1, 3] - np.logaddexp.reduce(exact[1])]
    assert np.abs(logprobs[0] - want).max() < 2e-6


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"algorithm": "trpo"}, NotImplementedError),
        ({"cispo_bound": "relative"}, ValueError),
        ({"delta": 1.1}, ValueError),
        ({"beta": 0.1}, ValueError),
        ({"frobnicate": 1}, TypeError),
    ],
    ids=["algorithm", "anothers", "delta", "no-reference", "unknown"],
)
def test_unsupported_and_impossible_values_have_their_own_errors(
    changes: dict[str, Any], error: type[Exception]
) -> None:
    """A name that the trainer lacks, a constant of another algorithm, values that contradict, an unknown keyword."""
    row = np.array([[-1.0]], np.float32)
    with pytest.raises(error):
        subject.policy_loss(policy=row, advantages=np.ones(1, np.float32), mask=row < 0, **CONSTANTS | changes)
