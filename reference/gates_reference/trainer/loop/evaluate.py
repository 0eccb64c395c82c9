"""Evaluate a model on prompts that it does not train on: rewards of fresh completions, or margins of given pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer import logprobs
from gates_reference.trainer.config.read import Config
from gates_reference.trainer.engine.rollout import Generation, Source
from gates_reference.trainer.loop import prepare


def run(config: Config, adapter: Path | None, *, base: bool) -> dict[str, Any]:
    """Evaluate the configured model with the adapters of a folder, on the validation prompts if there are any, else on all.

    Raises:
        ConfigurationError, DataError, RewardError: as their messages say.
    """
    folder = None if base else prepare.adapter_folder(config, adapter)
    with prepare.trained(config, folder) as loaded:
        train, validation, names = prepare.sources(config, loaded.tokenizer)
        return {"adapter": str(folder or ""), **measured(config, loaded.model, validation or train, names, 0)}


def measured(config: Config, model: Any, source: Source, names: Sequence[str], round_: int) -> Mapping[str, float]:
    """Measure a model on a source as configured: rewards, or margins where pairs come with the data."""
    rollouts = generations(model, source, config.loop.prompts_per_step, round_)
    if config.data.offline:
        return margins(model, rollouts, config.scoring_temperature(), head_rows=config.loop.head_rows or None)
    return numbers(rollouts, names)


def generations(model: Any, source: Source, prompts_at_once: int, round_: int) -> list[Generation]:
    """Roll out every prompt of the source once, `prompts_at_once` at a time."""
    indices = range(len(source.prompts))
    starts = range(0, len(indices), prompts_at_once)
    return [source.once(model, indices[start : start + prompts_at_once], round_) for start in starts]


def numbers(rollouts: Sequence[Generation], names: Sequence[str]) -> Mapping[str, float]:
    """Return mean rewards, mean length and the truncated share over all completions; NaN if nothing was scored.

    `best_of_group` is the mean over prompts of the best reward among a prompt's completions.
    """
    totals = np.concatenate([rollout.rewards.total() for rollout in rollouts])
    values = np.concatenate([rollout.rewards.values for rollout in rollouts])
    groups = totals.reshape(-1, rollouts[0].group_size)
    best = [float(np.nanmax(group)) for group in groups if not np.isnan(group).all()]
    return {
        "prompts": float(len(groups)),
        "completions": float(len(totals)),
        "reward_mean": _mean(totals),
        "best_of_group": float(np.mean(best)) if best else float("nan"),
        **{f"reward_{name}_mean": _mean(values[:, n]) for n, name in enumerate(names)},
        "length_mean": float(np.concatenate([rollout.lengths for rollout in rollouts]).mean()),
        "truncated_share": float((~np.concatenate([rollout.ended for rollout in rollouts])).mean()),
    }


def margins(
    model: Any, rollouts: Sequence[Generation], temperature: float, *, head_rows: int | None = None
) -> Mapping[str, float]:
    """Return by how many nats, and how often, the policy prefers the chosen completions more than the reference does.

    The completions are pairs, chosen first.
    """
    values: list[NDArray[np.float64]] = []
    for rollout in rollouts:
        prompts = [rollout.prompts[row // 2].ids for row in range(len(rollout.lengths))]
        batch = logprobs.pack(prompts, rollout.tokens, rollout.lengths)
        policy = np.array(logprobs.of_policy(model, batch, temperature, head_rows=head_rows), np.float64)
        reference = np.array(logprobs.of_reference(model, batch, temperature, head_rows=head_rows), np.float64)
        sums = (policy - reference).sum(axis=1)
        values.append(sums[0::2] - sums[1::2])
    every = np.concatenate(values)
    return {
        "prompts": float(len(every)),
        "margin_mean": float(every.mean()),
        "margin_positive_share": float((every > 0).mean()),
    }


def _mean(values: NDArray[np.float64]) -> float:
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if scored.size else float("nan")
