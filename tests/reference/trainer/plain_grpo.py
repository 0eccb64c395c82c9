"""GRPO as its paper writes it, in a few lines of plain MLX: an algorithm for tests of the engine, which must not need a real one."""

import mlx.core as mx
import numpy as np

from gates_reference.trainer.algorithms import protocol


class PlainGrpo(protocol.Algorithm):
    """Clipped surrogate, k3, row means over the rows of the whole step; z-scores by NumPy."""

    name = "plain-grpo"

    def __init__(self, beta: float = 0.0, *, keep_varied: bool = False) -> None:
        self.beta, self.keep_varied, self.needs_reference = beta, keep_varied, beta > 0

    def advantages(self, rewards: protocol.Rewards, *, old_kl: np.ndarray | None = None) -> np.ndarray:
        total = rewards.total().reshape(-1, rewards.group_size)
        centred = total - total.mean(axis=1, keepdims=True)
        return (centred / (total.std(axis=1, ddof=1, keepdims=True) + 1e-4)).reshape(-1).astype(np.float32)

    def keep(self, rewards: protocol.Rewards) -> np.ndarray:
        total = rewards.total().reshape(-1, rewards.group_size)
        return np.ptp(total, axis=1) > 0 if self.keep_varied else np.ones(len(total), np.bool_)

    def loss(self, part: protocol.MicroBatch, whole: protocol.StepTotals) -> protocol.Loss:
        old = mx.stop_gradient(part.policy) if part.old is None else part.old
        ratio = mx.exp(mx.where(part.mask, part.policy - old, 0.0))
        gain = part.advantages[:, None]
        terms = -mx.minimum(ratio * gain, mx.clip(ratio, 0.8, 1.2) * gain)
        kl = mx.zeros_like(terms)
        if part.reference is not None:
            d = mx.where(part.mask, part.reference - part.policy, 0.0)
            kl = self.beta * (mx.exp(d) - d - 1)
        counts = mx.maximum(part.mask.sum(axis=1), 1)

        def total(x: mx.array) -> mx.array:
            return (mx.where(part.mask, x, 0.0).sum(axis=1) / counts).sum() / whole.rows

        return protocol.Loss(total(terms + kl), total(terms), total(kl), mx.zeros(()))
