"""Mutations of whole updates; loaded in workers only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import optimizers

from gates.families.patching import Fn, mutation


@mutation
def shifted_rows(original: Fn, *arguments: Any) -> Any:
    """Begin each row's scored tokens one before its completion."""
    batch = original(*arguments)
    return replace(batch, prompt_lengths=batch.prompt_lengths - 1)


@mutation
def old_of_each_update(original: Fn, *arguments: Any) -> Any:
    """Take the policy's own log-probs for the old ones."""
    batch = original(*arguments)
    return replace(batch, old=mx.stop_gradient(batch.policy))


@mutation
def reference_of_the_policy(original: Fn, *arguments: Any) -> Any:
    """Take the policy's own log-probs for the reference's."""
    batch = original(*arguments)
    return batch if batch.reference is None else replace(batch, reference=mx.stop_gradient(batch.policy))


@mutation
def advantages_of_other_rows(original: Fn, engine: Any, generation: Any, steps: Any) -> Any:
    """Give each row the advantage of its neighbour."""
    advantages = np.roll(original(engine, generation, steps), 1)
    for inputs in (inputs for step in steps for inputs in step.micro_batches):
        inputs.advantages = mx.array(advantages[inputs.rows])
    return advantages


@mutation
def decay_by_default(original: Fn, settings: Any) -> Any:
    """Decay weights although nobody asked."""
    made = original(settings)
    return optimizers.AdamW(settings.learning_rate, made.betas, made.eps, 0.01, bias_correction=True)


@mutation
def norm_after_the_clip(original: Fn, engine: Any, *arguments: Any) -> Any:
    """Report the norm that the optimizer receives."""
    update = original(engine, *arguments)
    limit = engine.config.optimizer.max_gradient_norm
    return replace(update, gradient_norm=min(update.gradient_norm, math.inf if limit == "off" else limit))


@mutation
def width_not_in_force(original: Fn, name: str, settings: Mapping[str, Any]) -> Any:
    """Drop the lower width."""
    return original(name, {key: value for key, value in settings.items() if key != "epsilon_low"})
