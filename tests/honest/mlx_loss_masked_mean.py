"""DAPO's and REINFORCE++'s loss with a masked mean whose denominator has 1e-8, in MLX; float32.

gates check loss --subject tests/honest/mlx_loss_masked_mean.py
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

VERSIONS = {"mlx": mx.__version__}
mx.set_default_device(mx.cpu)


def masked_mean(x: Any, mask: Any) -> Any:
    """Return the mean over all tokens."""
    return mx.sum(x * mask) / (mx.sum(mask) + 1e-8)


def surrogate(logprobs: Any, old: Any, advantages: Any, mask: Any, widths: tuple[float, float]) -> Any:
    """Return the clipped surrogate's mean over tokens."""
    log_ratio = mx.clip((logprobs - old) * mask, -20.0, 20.0)
    ratio = mx.exp(log_ratio)
    first = -advantages * ratio
    second = -advantages * mx.clip(ratio, 1.0 - widths[0], 1.0 + widths[1])
    return masked_mean(mx.maximum(first, second), mask)


def policy_loss(
    *,
    policy: Any,
    mask: Any = None,
    old: Any = None,
    advantages: Any,
    algorithm: str,
    epsilon_low: float,
    epsilon_high: float,
) -> dict[str, Any]:
    """Differentiate the surrogate."""
    logprobs = mx.array(policy)
    keep = mx.ones(logprobs.shape) if mask is None else mx.array(mask).astype(mx.float32)
    gains = mx.array(advantages)
    gains = gains[:, None] if gains.ndim == 1 else gains
    behaviour = logprobs if old is None else mx.array(old)
    widths = epsilon_low, epsilon_high
    loss, gradient = mx.value_and_grad(surrogate)(logprobs, behaviour, gains, keep, widths)
    return {"loss": loss.item(), "gradient": np.array(gradient)}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {"algorithm": ("dapo", "reinforce++"), "dapo_denominator": ("global",), "dtype": ("float32",)}
}
