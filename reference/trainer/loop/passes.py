"""The seams of a training step: advantages, the two constant passes, the gradient; and one whole step for the gates.

The engine (`reference.trainer.engine.step`) calls these functions through this module, so that what a gate breaks here breaks there.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers
from mlx.utils import tree_flatten
from numpy.typing import NDArray

from reference.trainer import double, logprobs, lora
from reference.trainer.algorithms import kl, protocol, ratio


@dataclass(frozen=True, slots=True)
class Report:
    """What one step did; means are over completion tokens, of the policy before the update."""

    loss: float
    gradient_norm: float
    ratio_mean: float
    kl_mean: float


def group_advantages(rewards: NDArray[np.float64], group_size: int) -> NDArray[np.float32]:
    """The group z-scores of `rlkernels.group_advantages` (ddof 1, + 1e-4) as float32."""
    rlkernels = importlib.import_module("rlkernels")  # compiled; sampling and scoring do without it
    return np.asarray(rlkernels.group_advantages(np.asarray(rewards, np.float64), group_size)).astype(np.float32)


def old_logprobs(model: Any, batch: logprobs.Batch, temperature: float, *, head_rows: int | None = None) -> mx.array:
    """The behaviour policy's log-probs (B, T) by a full forward of the model as it is, a constant."""
    values, _ = logprobs.of_model(model, batch, temperature, head_rows=head_rows)
    mx.eval(values)
    return mx.stop_gradient(values)


def reference_logprobs(
    model: Any, batch: logprobs.Batch, temperature: float, *, head_rows: int | None = None
) -> mx.array:
    """The reference policy's log-probs (B, T): the same model with its adapters off, a constant."""
    with lora.adapters_off(model):
        values, _ = logprobs.of_model(model, batch, temperature, head_rows=head_rows)
        mx.eval(values)
    return mx.stop_gradient(values)


def loss_and_grad(model: Any, loss: Callable[[], mx.array]) -> tuple[mx.array, Any]:
    """The loss and its gradient in the model's trainable parameters; the forward pass runs inside."""
    value, gradient = nn.value_and_grad(model, loss)()
    return value, gradient


def global_norm(gradient: Any) -> float:
    """The Euclidean norm of all of a gradient's values together, the squares summed in float32 per array, then in float64."""
    return float(np.sqrt(sum(float((g.astype(mx.float32) ** 2).sum()) for _, g in tree_flatten(gradient))))


def step(
    model: Any,
    optimizer: optimizers.Optimizer,
    batch: logprobs.Batch,
    advantages: NDArray[np.float32],
    temperature: float,
    algorithm: protocol.Algorithm,
) -> Report:
    """Update the adapters once by an algorithm's loss on a batch that the model itself has just sampled, in one part."""
    lora.freeze(model)
    old = old_logprobs(model, batch, temperature)
    reference = reference_logprobs(model, batch, temperature)
    groups = np.arange(len(batch.lengths))
    whole = protocol.whole_step(batch.lengths, groups, parts=1, max_length=batch.width)

    def loss() -> mx.array:
        policy, mask = logprobs.of_model(model, batch, temperature)
        base = reference if algorithm.needs_reference else None
        return algorithm.loss(protocol.Scored(policy, mask, mx.array(advantages), groups, old, base), whole).value

    policy, mask = logprobs.of_model(model, batch, temperature)
    tokens = max(int(mask.sum()), 1)
    moved = double.exp(*ratio.token(policy, old))
    ratio_mean = float(ratio.select(mask, moved).sum()) / tokens
    kl_mean = float(ratio.select(mask, kl.token_kl(policy, reference)).sum()) / tokens
    value, gradient = loss_and_grad(model, loss)
    norm = global_norm(gradient)
    optimizer.update(model, gradient)
    mx.eval(model.parameters(), optimizer.state)
    return Report(float(value), norm, ratio_mean, kl_mean)
