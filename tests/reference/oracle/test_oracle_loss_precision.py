"""Policy losses of float64 data agree with fifty digits far inside the bound by which kernels are judged."""

from typing import Any

import mpmath
import numpy as np
import pytest
from literal import VARIANTS, literal

from gates_reference.oracle.losses import PolicyLoss, policy_loss

U = 2.0**-53
KLS: dict[str, dict[str, Any]] = {
    "none": {"beta": 0.0, "kl_ratio": None, "kl_estimator": None},
    "k1-token": {"beta": 0.3, "kl_ratio": "token", "kl_estimator": "k1"},
    "k2-sequence": {"beta": 0.3, "kl_ratio": "sequence", "kl_estimator": "k2"},
    "k3-none": {"beta": 0.3, "kl_ratio": "none", "kl_estimator": "k3"},
    "k3-token": {"beta": 0.3, "kl_ratio": "token", "kl_estimator": "k3"},
}


def given(variant: str, kl: str, spread: float) -> dict[str, Any]:
    """Keywords with differences policy - old of a seventh of `spread` nats.

    Six rows of up to 12 tokens whose log-probs share no bits, so that every difference is rounded.
    """
    rng = np.random.default_rng(11)
    mask = np.arange(12) < np.array([12, 3, 7, 0, 1, 9])[:, None]
    policy = rng.uniform(-9.0, -0.001, mask.shape) / 3.0
    chosen: dict[str, Any] = {
        "policy": policy,
        "old": policy - rng.normal(0.0, spread, mask.shape) / 7.0,
        "reference": policy + rng.normal(0.0, 0.5, mask.shape),
        "advantages": np.array([-1.5, 0.7, 0.4, 3.0, 0.9, -1.3]),
        "mask": mask,
        "epsilon_low": 0.2,
        "epsilon_high": 0.3,
        "delta": None,
    }
    if variant in ("rloo", "sapo", "reinforce", "vespo"):
        chosen |= {"epsilon_low": None, "epsilon_high": None}
    if variant.startswith("cispo") and variant != "cispo-lower":
        chosen["epsilon_low"] = None
    return chosen | VARIANTS[variant] | KLS[kl]


def exact(inputs: dict[str, Any]) -> tuple[Any, np.ndarray[Any, Any]]:
    """The loss and its gradient to fifty digits, the gradient by a complex step that leaves no error."""
    mask = inputs["mask"]
    precise = inputs | {
        name: np.vectorize(mpmath.mpf, otypes=[object])(inputs[name])
        for name in ("policy", "old", "reference", "advantages")
    }
    gradient = np.zeros(mask.shape, object)
    with mpmath.workdps(60):
        loss = literal(precise["policy"], precise, mpmath.exp)
        for slot in np.argwhere(mask):
            moved = precise["policy"].copy()
            moved[tuple(slot)] += mpmath.mpc(0, "1e-50")
            gradient[tuple(slot)] = literal(moved, precise, mpmath.exp).imag * mpmath.mpf("1e50")
        return loss.real, gradient


def errors(got: PolicyLoss, inputs: dict[str, Any]) -> tuple[float, float]:
    """The error of the loss and the largest of a gradient's elements, each in units of 2u S."""
    loss, gradient = exact(inputs)
    mask = inputs["mask"]
    scale = got.gradient_scale[mask]
    with mpmath.workdps(60):
        off = [abs(mpmath.mpf(a) - b) for a, b in zip(got.gradient[mask], gradient[mask], strict=True)]
    assert all(x < np.finfo(float).tiny for x, s in zip(off, scale, strict=True) if s == 0)
    worst = max((float(x / s) for x, s in zip(off, scale, strict=True) if s), default=0.0)
    return float(abs(got.loss - loss)) / (2 * U * got.loss_scale), worst / (2 * U)


SPREADS = {"near": 0.4, "far": 30.0}


@pytest.mark.parametrize(
    ("variant", "kl", "spread"),
    [
        pytest.param(
            variant,
            kl,
            SPREADS[spread],
            marks=pytest.mark.long if (i + j + k) % 2 else (),  # `make test` tries every pair, `make record` all three
            id=f"{spread}-{variant}-{kl}",
        )
        for i, variant in enumerate(VARIANTS)
        for j, kl in enumerate(KLS)
        for k, spread in enumerate(SPREADS)
        if variant not in ("rloo", "reinforce++") or kl == "none"
    ],
)
def test_fifty_digits(variant: str, kl: str, spread: float) -> None:
    """The loss is within 1.5 and every element of the gradient within 3 of the units in which kernels have 8."""
    inputs = given(variant, kl, spread)
    loss, gradient = errors(policy_loss(**inputs), inputs)
    assert loss <= 1.5
    assert gradient <= 3.0
