"""Mutations of the updates of a run, of its optimizer and its numbers; loaded in workers only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from gates.families.patching import Fn, mutation
from gates_reference.trainer.engine import step as engine


@mutation
def last_micro_batch_lost(original: Fn, *arguments: Any) -> Any:
    """Leave out the last micro-batch of a step that has several."""
    steps = original(*arguments)
    return [replace(s, micro_batches=s.micro_batches[: max(len(s.micro_batches) - 1, 1)]) for s in steps]


@mutation
def mean_of_micro_batches(original: Fn, self: Any, inputs: Any, totals: Any, learned: Any) -> Any:
    """Divide each micro-batch's gradient by their number once more."""
    gradient, values = original(self, inputs, totals, learned)
    return tree_map(lambda g: g / totals.micro_batches, gradient), values


@mutation
def clip_of_each_micro_batch(original: Fn, self: Any, inputs: Any, totals: Any, learned: Any) -> Any:
    """Clip the norm of each micro-batch's gradient."""
    gradient, values = original(self, inputs, totals, learned)
    limit = self.config.optimizer.max_gradient_norm
    return engine.clipped(gradient, engine.global_norm(gradient), limit), values


@mutation
def no_clip(original: Fn, gradient: Any, norm: float, limit: Any) -> Any:
    """Leave the norm as it is."""
    del original, norm, limit
    return gradient


@mutation
def norm_before_as_after(original: Fn, self: Any, gradient: Any, norm: float) -> float:
    """Clip, and return the norm before."""
    original(self, gradient, norm)
    return norm


@mutation
def dropout_not_divided(original: Fn, self: Any, x: Any) -> Any:
    """Drop elements, and leave the others as they are."""
    y = original(self, x)
    return y if y is x else y * (1.0 - self.p)


@mutation
def masks_of_the_first_update(original: Fn, self: Any, number: int, update: int, inputs: Any) -> Any:
    """Draw the masks of a step's first update for each of its updates."""
    del update
    return original(self, number, 0, inputs)


@mutation
def entropy_lowered(original: Fn, *arguments: Any) -> Any:
    """Add the entropy to the loss instead of subtracting it."""
    return -original(*arguments)


@mutation
def kl_weighed_twice(original: Fn, settings: Any, *arguments: Any) -> Any:
    """Multiply the KL by beta twice."""
    return original(settings, *arguments) * settings.beta


@mutation
def tokens_of_all_slots(original: Fn, lengths: Any, groups: Any, **keywords: Any) -> Any:
    """Count one token too many in each row."""
    return original(lengths + 1, groups, **keywords)


@mutation
def schedule_a_step_late(original: Fn, settings: Any, step: int, steps: int) -> Any:
    """Take the learning rate of the step before."""
    return original(settings, max(step - 1, 0), steps)


@mutation
def warm_up_from_zero(original: Fn, settings: Any, step: int, steps: int) -> Any:
    """Begin the warm-up at 0."""
    rate = original(settings, step, steps)
    return rate - settings.learning_rate / settings.warmup_steps if step < settings.warmup_steps else rate


@mutation
def moments_lost_on_resume(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Resume with moments of 0."""
    position = original(*arguments, **keywords)
    optimizer = keywords["optimizer"]
    optimizer.state = tree_map(
        lambda x: x if x.dtype != mx.float32 or not x.ndim else mx.zeros_like(x), optimizer.state
    )
    return position


@mutation
def position_lost_on_resume(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Resume at the first prompt of the data."""
    return replace(original(*arguments, **keywords), taken=0)


@mutation
def no_bias_correction(original: Fn, settings: Any) -> Any:
    """Divide moments by nothing."""
    made = original(settings)
    if hasattr(made, "bias_correction"):
        made.bias_correction = False
    return made


@mutation
def norm_of_the_last_array(original: Fn, gradient: Any) -> Any:
    """Report the largest norm of an array."""
    del original
    return max(float(mx.linalg.norm(g.astype(mx.float32).reshape(-1))) for _, g in tree_flatten(gradient))


@mutation
def weights_in_half(original: Fn, self: Any, *arguments: Any) -> Any:
    """Round the adapters to bfloat16 after an update."""
    update = original(self, *arguments)
    half = tree_map(lambda x: x.astype(mx.bfloat16).astype(mx.float32), self.model.trainable_parameters())
    self.model.update(half)
    return update


@mutation
def mean_with_unscored(original: Fn, generation: Any, names: Any) -> Any:
    """Report the mean reward of the first row of each group."""
    numbers = original(generation, names)
    total = generation.rewards.total()
    return {**numbers, "reward_mean": float(total[:: generation.group_size].mean())}


@mutation
def length_without_end(original: Fn, generation: Any) -> Any:
    """Report lengths without the end token."""
    numbers = original(generation)
    return {**numbers, "length_mean": numbers["length_mean"] - float(generation.ended.mean())}


def numbers_of_the_step_before(original: Fn) -> Fn:
    """Show on the console what the step before had."""
    last: list[list[str]] = []

    def measures(numbers: Any, times: Any) -> list[str]:
        last.append(original(numbers, times))
        return last[max(len(last) - 2, 0)]

    return measures


@mutation
def first_rows_shown_with_other_rewards(original: Fn, self: Any, generation: Any, *arguments: Any) -> Any:
    """Show completions beside the rewards of the last rows."""
    values = generation.rewards.values[::-1]
    return original(self, replace(generation, rewards=replace(generation.rewards, values=values)), *arguments)
