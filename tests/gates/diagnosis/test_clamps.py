"""A clamp of log-ratios, of the KL's difference or of its estimates is a choice, named with its size where input shows it."""

from pathlib import Path

import pytest
from command_line import here

LOSS = """
import numpy as np

def loss(policy, advantages, mask, old, reference, epsilon_low, epsilon_high, beta):
    lp = policy.astype(float)
    m = np.ones(lp.shape, bool) if mask is None else mask
    a = (advantages[:, None] if advantages.ndim == 1 else advantages).astype(float)
    d, of_ratio = held(lp - (lp if old is None else old), {ratio})
    r = np.exp(d)
    free, clipped = r * a, np.clip(r, 1 - epsilon_low, 1 + epsilon_high) * a
    value, slope = -np.minimum(free, clipped), np.where(free <= clipped, -r * a, 0.0) * of_ratio
    if beta:
        k, of_difference = held(reference - lp, {difference})
        k3, of_estimate = held(np.exp(k) - k - 1, {estimate})
        value, slope = value + beta * k3, slope + beta * (1 - np.exp(k)) * of_difference * of_estimate
    w = m / (np.maximum(m.sum(1, keepdims=True), 1) * len(m))
    return {{"loss": np.where(m, value * w, 0).sum(), "gradient": np.where(m, slope * w, 0).astype(policy.dtype)}}

def held(x, size):
    return (x, 1.0) if size is None else (np.clip(x, -size, size), np.abs(x) <= size)

def policy_loss(*, policy, advantages, mask, old=None, reference=None, epsilon_low, epsilon_high, beta, algorithm, kl_estimator, kl_ratio):
    return loss(policy, advantages, mask, old, reference, epsilon_low, epsilon_high, beta)

def token_kl(*, policy, reference, mask, estimator, reduction):
    d, _ = held(reference.astype(float) - policy, {difference})
    k3, _ = held(np.exp(d) - d - 1, {estimate})
    return {{"kl": np.where(True if mask is None else mask, k3, 0)}}

OPS = {{"policy_loss": policy_loss, "token_kl": token_kl}}
CONVENTIONS = {{
    "policy_loss": {{
        "algorithm": ("grpo",), "kl_estimator": ("k3",), "kl_ratio": ("none",), "weights": (False,),
        "rows": ("mask", "holes", "all"),
    }},
    "token_kl": {{"estimator": ("k3",), "reduction": ("none",), "kl_ratio": ("none",), "kl_clamp": (None,)}},
}}
"""
NONE = {"ratio": None, "difference": None, "estimate": None}


def lines(folder: Path, *gate: str, **sizes: float) -> str:
    (folder / "mine.py").write_text(LOSS.format(**{**NONE, **sizes}))
    done = here("check", *gate, "--subject", "./mine.py", "--no-minimise", cwd=folder)
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"ratio": 10.0}, "FRAGILE policy_loss[grpo] computes: the log-ratio clamped to ±10 before exp ratios up to"),
        ({"ratio": 5.0}, "FRAGILE policy_loss[grpo] computes: the log-ratio clamped to ±5 before exp ratios up to"),
        (
            {"difference": 5.0},
            "FRAGILE policy_loss[grpo] computes: the KL's difference of log-probs clamped to ±5 reference up to",
        ),
        (
            {"estimate": 10.0},
            "FRAGILE policy_loss[grpo] computes: KL clamped to ±10; declare kl_clamp=(10.0,) if it is meant reference",
        ),
        ({"estimate": 20.0}, "FRAGILE policy_loss[grpo] computes: KL clamped to ±20 reference up to 8 nats away"),
    ],
    ids=str,
)
def test_a_clamp_of_the_loss_is_named(tmp_path: Path, sizes: dict[str, float], words: str) -> None:
    """By the rare input that shows it."""
    text = lines(tmp_path, "loss.grpo.matches-definition", "loss.full-precision", **sizes)
    assert words in text, text


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"ratio": 1.0}, "DIFFERS policy_loss[grpo] computes: the log-ratio clamped to ±1 before exp loss"),
        ({"estimate": 1.0}, "DIFFERS policy_loss[grpo] computes: KL clamped to ±1 loss"),
    ],
    ids=str,
)
def test_a_narrow_clamp_differs(tmp_path: Path, sizes: dict[str, float], words: str) -> None:
    """Ordinary input shows it, or a few numbers of it."""
    text = lines(tmp_path, "loss.grpo.matches-definition", **sizes)
    assert words in text, text


@pytest.mark.parametrize("sizes", [{"ratio": 20.0}, {"difference": 20.0}], ids=str)
def test_a_clamp_against_overflow_costs_nothing(tmp_path: Path, sizes: dict[str, float]) -> None:
    """No input of a pipeline reaches it."""
    text = lines(tmp_path, "loss.grpo.matches-definition", **sizes)
    assert "correct policy_loss[grpo]" in text, text


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"difference": 5.0}, "computes: d clamped to ±5 before the estimate"),
        ({"estimate": 5.0}, "computes: each estimate clamped to ±5"),
    ],
    ids=str,
)
def test_a_clamp_of_the_kl_is_named(tmp_path: Path, sizes: dict[str, float], words: str) -> None:
    """And never a mistake."""
    text = lines(tmp_path, "kl.k3.matches-definition", **sizes)
    assert words in text, text
    assert "WRONG" not in text, text
