"""Optimizers of mlx.optimizers by name, and the learning rate of a step."""

import math
from typing import Any

from mlx import optimizers

from gates_reference.trainer.config import sections


def make(settings: sections.Optimizer) -> Any:
    """Return the optimizer; the engine sets its learning rate in every step. Adam is bias-corrected (Kingma and Ba 2015, alg. 1)."""
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.name == "adam":
        return optimizers.Adam(rate, list(settings.betas), settings.epsilon, bias_correction=True)
    if settings.name == "adamw":
        return optimizers.AdamW(rate, list(settings.betas), settings.epsilon, decay, bias_correction=True)
    if settings.name == "sgd":
        return optimizers.SGD(rate, settings.momentum, decay)
    return optimizers.Muon(rate, settings.momentum, decay)


def learning_rate(settings: sections.Optimizer, step: int, steps: int) -> float:
    """Return the learning rate of step 0, 1, …: linear warm-up from rate / warmup_steps, then the schedule to its final share."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    if settings.schedule == "constant":
        return settings.learning_rate
    done = (step - settings.warmup_steps) / max(steps - settings.warmup_steps, 1)
    left = 1 - done if settings.schedule == "linear" else (1 + math.cos(math.pi * min(done, 1))) / 2
    return settings.learning_rate * (settings.final_share + (1 - settings.final_share) * max(left, 0.0))
