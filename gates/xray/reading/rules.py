"""The arithmetic of optimizers, in float64: what a weight is after an update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.model import Array


@dataclass(frozen=True, slots=True)
class Sample:
    """Single weights of one group of an optimizer.

    Attributes:
        before, after, gradient: the weight before and after the update, and its gradient.
        state: the optimizer's numbers for it before the update; absent before its first.
    """

    before: Array
    after: Array
    gradient: Array
    state: Mapping[str, Array]

    def of(self, *names: str) -> Array:
        """Return the state under the first of some names that it has; 0 where it has none yet."""
        for name in names:
            if name in self.state:
                return np.nan_to_num(np.asarray(self.state[name], np.float64))
        return np.zeros_like(self.before)

    @property
    def fresh(self) -> bool:
        """Whether the optimizer has no state yet."""
        return not any(np.isfinite(values).any() for values in self.state.values())


Settings = Mapping[str, Any]


def rate(settings: Settings) -> float:
    """Return the learning rate."""
    return float(settings.get("lr", settings.get("learning_rate", 0.0)))


def decay(settings: Settings) -> float:
    """Return the weight decay."""
    return float(settings.get("weight_decay") or 0.0)


@dataclass(frozen=True, slots=True)
class Ruled:
    """A weight after an update, as a rule has it.

    Attributes:
        after: the weight.
        terms: size of the terms that were added to the weight before: what rounding is relative to.
    """

    after: Array
    terms: Array


def sgd(sample: Sample, settings: Settings) -> Ruled:
    """SGD: momentum, dampening, Nesterov; the decay is added to the gradient (torch.optim.SGD, mlx.optimizers.SGD)."""
    decayed = decay(settings) * sample.before
    gradient = _signed(sample, settings) + decayed
    terms = np.abs(sample.gradient) + np.abs(decayed)
    momentum = float(settings.get("momentum") or 0.0)
    if momentum:
        dampening = float(settings.get("dampening") or 0.0)
        first = sample.fresh and "lr" in settings  # torch begins with the gradient itself, MLX with 0
        buffer = gradient if first else momentum * sample.of("momentum_buffer", "v") + (1.0 - dampening) * gradient
        terms = terms + momentum * np.abs(sample.of("momentum_buffer", "v"))
        gradient = gradient + momentum * buffer if settings.get("nesterov") else buffer
    return Ruled(sample.before - rate(settings) * gradient, rate(settings) * terms)


def adam(sample: Sample, settings: Settings, *, decoupled: bool, corrected: bool | None = None) -> Ruled:
    """Adam (1412.6980) with a decay of the gradient, AdamW (1711.05101) with one of the weight."""
    decoupled = bool(settings.get("decoupled_weight_decay", decoupled))
    gradient = _signed(sample, settings) + (0.0 if decoupled else decay(settings)) * sample.before
    before = sample.before * (1.0 - rate(settings) * decay(settings)) if decoupled else sample.before
    first, second = (float(beta) for beta in settings.get("betas", (0.9, 0.999)))
    mean = first * sample.of("exp_avg", "m") + (1.0 - first) * gradient
    square = second * sample.of("exp_avg_sq", "v") + (1.0 - second) * gradient**2
    if settings.get("amsgrad"):
        square = np.maximum(square, sample.of("max_exp_avg_sq"))
    if corrected is None:
        corrected = bool(settings.get("bias_correction", "lr" in settings))
    step = sample.of("step") + 1.0
    by_mean, by_square = (1.0 - first**step, 1.0 - second**step) if corrected else (1.0, 1.0)
    below = np.sqrt(square / by_square) + float(settings.get("eps", 1e-8))
    terms = (first * np.abs(sample.of("exp_avg", "m")) + (1.0 - first) * np.abs(gradient)) / by_mean / below
    terms = terms * (1.0 / by_mean + 0.5 / by_square)  # 1 − β^t in the weights' dtype loses digits where it is small
    return Ruled(before - rate(settings) * mean / by_mean / below, rate(settings) * terms)


def _signed(sample: Sample, settings: Settings) -> Array:
    return -sample.gradient if settings.get("maximize") else sample.gradient


Rule = Callable[[Sample, Settings], Ruled]
RULES: Mapping[str, Rule] = {
    "SGD": sgd,
    "Adam": lambda sample, settings: adam(sample, settings, decoupled=False),
    "AdamW": lambda sample, settings: adam(sample, settings, decoupled=True),
}


def _others(*, decoupled: bool) -> dict[str, Rule]:
    """Return what an update may follow instead of the rule of Adam or AdamW."""
    other = "with the decay added to the gradient" if decoupled else "with the decay taken from the weight"

    def turned(sample: Sample, settings: Settings) -> Ruled:
        return adam(sample, {**settings, "decoupled_weight_decay": not decoupled}, decoupled=not decoupled)

    def uncorrected(sample: Sample, settings: Settings) -> Ruled:
        return adam(sample, settings, decoupled=decoupled, corrected=False)

    def without(sample: Sample, settings: Settings) -> Ruled:
        return adam(sample, {**settings, "weight_decay": 0.0}, decoupled=True)

    def plain(sample: Sample, settings: Settings) -> Ruled:
        return sgd(sample, {**settings, "momentum": 0.0})

    return {
        "without weight decay": without,
        other: turned,
        "without the correction of the bias": uncorrected,
        "as SGD": plain,
    }


OTHERS: Mapping[str, Mapping[str, Rule]] = {"Adam": _others(decoupled=False), "AdamW": _others(decoupled=True)}
