"""Mistakes in checkpoints, evaluation, metrics and preferences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from gates.families.patching import Fn, mutation
from gates_reference.trainer.preference import margins


@mutation
def adam_step_count_lost(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Restore the optimizer's moments, but count its steps from 0 again."""
    position = original(*arguments, **keywords)
    state = keywords["optimizer"].state
    state["step"] = mx.zeros_like(state["step"])
    return position


@mutation
def checkpoint_before_update(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Save the adapters from before the step in the step's checkpoint."""
    run = arguments[0]
    before, save = run.model.trainable_parameters(), run._checkpoint  # noqa: SLF001  the step calls it

    def early() -> None:
        now = run.model.trainable_parameters()
        run.model.update(before)
        try:
            save()
        finally:
            run.model.update(now)

    run._checkpoint = early  # noqa: SLF001  as above
    try:
        return original(*arguments, **keywords)
    finally:
        del run._checkpoint  # noqa: SLF001  as above


@mutation
def evaluation_mean_of_means(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Average the means of the evaluation's batches, also if the last one is smaller."""
    rollouts, names = arguments
    whole = original(rollouts, names, **keywords)
    parts = [original([rollout], names, **keywords) for rollout in rollouts]
    means = {name: float(np.mean([part[name] for part in parts])) for name in whole}
    return {**means, "prompts": whole["prompts"], "completions": whole["completions"]}


@mutation
def metrics_of_last_update(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Report the loss and norm of a step's last update instead of the mean over its updates."""
    (learned,) = arguments
    whole = original(learned, **keywords)
    last = original(replace(learned, updates=learned.updates[-1:]), **keywords)
    return {**last, "updates": whole["updates"], "updates_skipped": whole["updates_skipped"]}


@mutation
def robust_for_conservative(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Smooth labels by the robust loss, which subtracts the swapped label and divides by 1 - 2 s."""
    x, settings = arguments
    if settings.label_smoothing == 0:
        return original(*arguments, **keywords)
    s, delta = settings.label_smoothing, settings.beta * x.high + settings.beta * x.low
    right, swapped = margins.minus_log_sigmoid(delta), margins.minus_log_sigmoid(-delta)
    return ((1.0 - s) * right - s * swapped) / (1.0 - 2.0 * s)


@mutation
def tie_prefers_second(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Choose the second completion of a tie."""
    (scores,) = arguments
    signs = original(*arguments, **keywords)
    tied = np.repeat(scores[0::2] == scores[1::2], 2)
    return np.where(tied, -signs, signs)


@mutation
def unscored_wins(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Take the argmax of scores with NaN, which gives the first NaN."""
    scores, group_size = arguments
    original(*arguments, **keywords)  # refuses groups without a score
    groups = scores.reshape(-1, group_size)
    return np.arange(len(groups)) * group_size + np.argmax(groups, axis=1)
