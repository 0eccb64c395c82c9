"""GRPO's loss in MLX: the forward alone, its gradient by autograd."""

import mlx.core as mx
import numpy as np


def policy_loss(*, policy, old, advantages, mask, epsilon_low, epsilon_high):
    """Return the clipped loss, the mean over rows of the mean over a row's tokens."""
    policy, weight = mx.array(policy), mx.array(mask).astype(mx.float32)
    old = policy if old is None else mx.array(old)
    advantages = mx.array(advantages)[:, None]

    def loss(policy):
        ratio = mx.exp(mx.where(weight > 0, policy - old, 0.0))
        clipped = mx.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
        tokens = -mx.minimum(ratio * advantages, clipped * advantages) * weight
        return (tokens.sum(axis=1) / mx.maximum(weight.sum(axis=1), 1.0)).mean()

    value, gradient = mx.value_and_grad(loss)(policy)
    return {"loss": value.item(), "gradient": np.array(gradient)}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {"algorithm": ("grpo",), "dtype": ("float32",), "rows": ("mask",), "advantages": ("row",)},
}
