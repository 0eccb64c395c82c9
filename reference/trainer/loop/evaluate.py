"""How good a model is on prompts that it does not train on: rewards of fresh completions, nothing is updated."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reference.trainer import logprobs
from reference.trainer.engine.rollout import Generation, Source
from reference.trainer.loop import passes


def generations(model: Any, source: Source, prompts_at_once: int, round_: int) -> list[Generation]:
    """One rollout of every prompt of the source, a few prompts at a time."""
    places = range(len(source.prompts))
    starts = range(0, len(places), prompts_at_once)
    return [source.once(model, places[start : start + prompts_at_once], round_) for start in starts]


def numbers(made: Sequence[Generation], names: Sequence[str]) -> Mapping[str, float]:
    """Mean rewards, mean length and truncated share over all completions; NaN where nothing was scored.

    `best_of_group` is the mean over prompts of the best reward among a prompt's completions.
    """
    totals = np.concatenate([one.rewards.total() for one in made])
    values = np.concatenate([one.rewards.values for one in made])
    groups = totals.reshape(-1, made[0].group_size)
    best = [float(np.nanmax(group)) for group in groups if not np.isnan(group).all()]
    return {
        "prompts": float(len(groups)),
        "completions": float(len(totals)),
        "reward_mean": _mean(totals),
        "best_of_group": float(np.mean(best)) if best else float("nan"),
        **{f"reward_{name}_mean": _mean(values[:, n]) for n, name in enumerate(names)},
        "length_mean": float(np.concatenate([one.lengths for one in made]).mean()),
        "truncated_share": float((~np.concatenate([one.ended for one in made])).mean()),
    }


def margins(
    model: Any, made: Sequence[Generation], temperature: float, *, head_rows: int | None = None
) -> Mapping[str, float]:
    """How far the policy prefers the chosen completions of pairs (chosen first) over the reference, in nats, and how often."""
    found: list[np.ndarray[Any, Any]] = []
    for one in made:
        prompts = [one.prompts[row // 2].ids for row in range(len(one.lengths))]
        batch = logprobs.pack(prompts, one.tokens, one.lengths)
        policy = np.array(passes.old_logprobs(model, batch, temperature, head_rows=head_rows), np.float64)
        reference = np.array(passes.reference_logprobs(model, batch, temperature, head_rows=head_rows), np.float64)
        sums = (policy - reference).sum(axis=1)
        found.append(sums[0::2] - sums[1::2])
    every = np.concatenate(found)
    return {
        "prompts": float(len(every)),
        "margin_mean": float(every.mean()),
        "margin_positive_share": float((every > 0).mean()),
    }


def _mean(values: np.ndarray[Any, Any]) -> float:
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if scored.size else float("nan")
