"""Mutations of what a run samples, rewards and scores; loaded in workers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from gates.families.patching import Fn, mutation
from gates_reference.trainer import logprobs


@mutation
def position_at_rest(original: Fn, count: int, position: int, *arguments: Any, **keywords: Any) -> Any:
    """Begin every step at the start of the data."""
    return original(count, position - position, *arguments, **keywords)


@mutation
def order_of_the_first_epoch(original: Fn, seed: int, epoch: int, count: int) -> Any:
    """Shuffle every epoch like the first; the split of the data keeps its own number."""
    return original(seed, epoch if epoch > 2**32 else 0, count)


@mutation
def round_at_rest(original: Fn, *arguments: Any) -> Any:
    """Draw with the keys of round 0 in every rollout."""
    return original(*arguments[:-1], 0)


@mutation
def tokenizers_end_alone(original: Fn, tokenizer: Any) -> Any:
    """End rows at the tokenizer's own end token only."""
    return (int(tokenizer.eos_token_id),) if len(original(tokenizer)) > 1 else original(tokenizer)


@mutation
def filters_dropped(original: Fn, *arguments: Any) -> Any:
    """Sample without top-k and top-p."""
    asked = original(*arguments)
    return replace(asked, settings=replace(asked.settings, top_k=0, top_p=1.0))


@mutation
def end_token_in_text(original: Fn, tokenizer: Any, every: Any, chosen: Any, result: Any, group_size: int) -> Any:
    """Show the end token to reward functions."""
    shown = replace_fields(result, ended=np.zeros_like(result.ended))
    return original(tokenizer, every, chosen, shown, group_size)


def replace_fields(result: Any, **values: Any) -> Any:
    """Return a copy of a rollout with other fields."""
    made = type(result)(**{name: getattr(result, name) for name in result.__slots__})
    for name, value in values.items():
        setattr(made, name, value)
    return made


@mutation
def rewards_of_the_next_row(original: Fn, function: Any, samples: Sequence[Any]) -> Any:
    """Give each completion the reward of the one before it."""
    return np.roll(original(function, samples), 1)


@mutation
def weights_left_out(original: Fn, *arguments: Any) -> Any:
    """Add up rewards without their weights."""
    rewards = original(*arguments)
    return replace(rewards, weights=np.ones_like(rewards.weights))


@mutation
def first_rows_of_a_step(original: Fn, generation: Any, groups: Any) -> Any:
    """Keep as many groups as asked, but the first ones."""
    return original(generation, np.sort(groups)[::-1])


@mutation
def whole_batch_as_group(original: Fn, rewards: Any, settings: Any, **keywords: Any) -> Any:
    """Compare each completion with all of the step."""
    whole = replace(rewards, group_size=len(rewards.values))
    return original(whole, settings, **keywords)


@mutation
def penalty_added(original: Fn, rewards: Any, settings: Any, *, old_kl: Any) -> Any:
    """Raise a reward by its KL."""
    return original(rewards, settings, old_kl=None if old_kl is None else -old_kl)


@mutation
def masked_rows_without_kl(original: Fn, self: Any, generation: Any, steps: Any) -> Any:
    """Take the KL of completions with an end token alone."""
    every = [inputs for step in steps for inputs in step.micro_batches]
    batches = [inputs.batch for inputs in every]
    for inputs, batch in zip(every, batches, strict=True):
        inputs.batch = replace(batch, lengths=np.where(generation.ended[inputs.rows], batch.lengths, 0))
    made = original(self, generation, steps)
    for inputs, batch in zip(every, batches, strict=True):
        inputs.batch = batch
    return made


@mutation
def late_by_one(original: Fn, *arguments: Any, **keywords: Any) -> Any:
    """Read the log-probs of the reference one slot late."""
    return mx.roll(original(*arguments, **keywords), 1, 1)


@mutation
def reference_at_one(original: Fn, model: Any, batch: Any, temperature: float, **keywords: Any) -> Any:
    """Score the reference at temperature 1."""
    del temperature
    return original(model, batch, 1.0, **keywords)


@mutation
def reference_with_adapters(original: Fn, model: Any, batch: Any, temperature: float, **keywords: Any) -> Any:
    """Score the reference with the adapters on."""
    del original
    return logprobs.of_policy(model, batch, temperature, **keywords)


@mutation
def truncated_rows_train(original: Fn, generation: Any) -> Any:
    """Leave the rows without an end token in the loss."""
    del original
    return generation


@mutation
def entropy_at_one(original: Fn, logits: Any, temperature: float) -> Any:
    """Take the entropy at temperature 1."""
    del temperature
    return original(logits, 1.0)


@mutation
def evaluation_on_the_same_keys(original: Fn, model: Any, source: Any, prompts_at_once: int, round_: int) -> Any:
    """Draw every evaluation with the keys of the first."""
    return original(model, source, prompts_at_once, round_ * 0 + 3)
