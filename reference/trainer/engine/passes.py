"""The passes of a training step: old and reference log-probs (constants) and the gradient; and `step`, one whole step in one call.

The engine calls these functions through this module, and so does `step`: a mutation applied here reaches both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers
from mlx.utils import tree_flatten
from numpy.typing import NDArray

import rlkernels
from reference.trainer import double, logprobs, lora
from reference.trainer.algorithms import kl, protocol, ratio


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of one step; means are over completion tokens, with the policy before the update."""

    loss: float
    gradient_norm: float
    ratio_mean: float
    kl_mean: float


def group_advantages(rewards: NDArray[np.float64], group_size: int) -> NDArray[np.float32]:
    """Return the group z-scores of `rlkernels.group_advantages` (ddof 1, + 1e-4) as float32."""
    return np.asarray(rlkernels.group_advantages(np.asarray(rewards, np.float64), group_size)).astype(np.float32)


def old_logprobs(model: Any, batch: logprobs.Batch, temperature: float, *, head_rows: int | None = None) -> mx.array:
    """Return the log-probs (B, T) of the current model by a full forward pass, as a constant."""
    values, _ = logprobs.of_model(model, batch, temperature, head_rows=head_rows)
    mx.eval(values)
    return mx.stop_gradient(values)


def reference_logprobs(
    model: Any, batch: logprobs.Batch, temperature: float, *, head_rows: int | None = None
) -> mx.array:
    """Return the log-probs (B, T) of the reference policy, the model with its adapters off, as a constant."""
    with lora.adapters_off(model):
        values, _ = logprobs.of_model(model, batch, temperature, head_rows=head_rows)
        mx.eval(values)
    return mx.stop_gradient(values)


def loss_and_grad(model: Any, loss: Callable[[], mx.array]) -> tuple[mx.array, Any]:
    """Return the loss and its gradient in the model's trainable parameters; the forward pass must run inside `loss`."""
    value, gradient = nn.value_and_grad(model, loss)()
    return value, gradient


def global_norm(gradient: Any) -> float:
    """Return the Euclidean norm of all values of a gradient; squares are summed in float32 per array, then in float64."""
    return float(np.sqrt(sum(float((g.astype(mx.float32) ** 2).sum()) for _, g in tree_flatten(gradient))))


def step(
    model: Any,
    optimizer: optimizers.Optimizer,
    batch: logprobs.Batch,
    advantages: NDArray[np.float32],
    temperature: float,
    algorithm: protocol.Algorithm,
) -> Report:
    """Update the adapters once by an algorithm's loss on a batch that the model has just sampled, in one micro-batch."""
    lora.freeze(model)
    old = old_logprobs(model, batch, temperature)
    reference = reference_logprobs(model, batch, temperature)
    groups = np.arange(len(batch.lengths))
    totals = protocol.step_totals(batch.lengths, groups, micro_batches=1, max_length=batch.width)

    def loss() -> mx.array:
        policy, mask = logprobs.of_model(model, batch, temperature)
        base = reference if algorithm.needs_reference else None
        return algorithm.loss(protocol.MicroBatch(policy, mask, mx.array(advantages), groups, old, base), totals).value

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
