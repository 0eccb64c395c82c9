"""Which completions a step learns from, and their advantages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay.measure import Measures
from gates.replay.run import Run
from gates.replay.trace import Rollout, Step, Trace
from gates_reference.oracle import advantages as oracle
from gates_reference.oracle.dynamic_sampling import keep_groups, overlong_penalty

KEPT = "rows that a step should not learn from, or lacks"
ROUNDS = "rollouts that a step makes too often or too rarely"
ADVANTAGE = "error of an advantage"
QUANTITIES = (KEPT, ROUNDS, ADVANTAGE)
PAIRS = ("dpo", "online_dpo")


def replay(run: Run) -> Measures:
    """Recompute groups and advantages."""
    found = Measures(dict.fromkeys(QUANTITIES, (0.0, "")))
    trace, settings = run.trace, run.trace.settings
    for step in trace.steps:
        where = f"step {step.number}"
        rows, needed = _kept(trace, step, settings)
        found.count(ROUNDS, abs(needed - len(step.rollouts)), f"{where}: {len(step.rollouts)}, must be {needed}")
        got = _rows(step)
        found.count(KEPT, int(got != [row[:2] for row in rows]), f"{where}: {len(got)} rows, must be {len(rows)}")
        if step.arrays and len(got) == len(rows):
            rewards = np.array([row[2] for row in rows])
            want = _advantages(trace, step, rewards, settings)
            spread = np.maximum(1.0, np.abs(want))
            found.distance(ADVANTAGE, step.arrays["advantages"], want, where, scale=spread)
    return found


Row = tuple[int, tuple[int, ...], Array]  # the prompt's index, the tokens, the rewards of all functions


def _kept(trace: Trace, step: Step, settings: Mapping[str, Any]) -> tuple[list[Row], int]:
    """Return the rows to learn from, and how many rollouts it takes to get them."""
    wanted = trace.config["loop"]["prompts_per_step"]
    groups: list[list[Row]] = []
    needed = 0
    for rollout in step.rollouts:
        needed += 1
        kept = _keeps(trace, rollout, settings)
        size = rollout.group_size
        groups += [
            [(int(prompt), tuple(rollout.completion(row).tolist()), rollout.rewards[row]) for row in _span(place, size)]
            for place, (prompt, keep) in enumerate(zip(rollout.prompts, kept, strict=True))
            if keep
        ]
        if len(groups) >= wanted:
            break
    else:
        if needed <= trace.config["algorithm"]["max_resamples"]:
            needed += 1  # one more was to come
    return [row for group in groups[:wanted] for row in group], needed


def _span(place: int, size: int) -> range:
    return range(place * size, (place + 1) * size)


def _rows(step: Step) -> list[tuple[int, tuple[int, ...]]]:
    if not step.arrays:
        return []
    prompts, tokens = np.repeat(step.arrays["prompts"], step.group_size), step.arrays["tokens"]
    return [(int(prompts[row]), tuple(tokens[row][tokens[row] >= 0].tolist())) for row in range(len(tokens))]


def _keeps(trace: Trace, rollout: Rollout, settings: Mapping[str, Any]) -> Array:
    """Return which groups (P,) the algorithm keeps."""
    if trace.config["algorithm"]["name"] in PAIRS:
        return np.asarray(~np.isnan(rollout.totals.reshape(-1, 2)).any(1))
    rule = settings.get("dynamic_sampling")
    if rule in (None, "off"):
        return np.ones(len(rollout.prompts), np.bool_)
    names = [function["name"] for function in trace.config["rewards"]["functions"]]
    column = names.index("accuracy") if "accuracy" in names else None
    return keep_groups(rollout.rewards, rollout.weights, rollout.group_size, convention=rule, accuracy=column)


def _advantages(trace: Trace, step: Step, rewards: Array, settings: Mapping[str, Any]) -> Array:
    """Return the advantages (R,) of rewards (R, F) by the definition of the algorithm."""
    name = trace.config["algorithm"]["name"]
    totals = step.arrays["totals"]
    size = step.group_size
    if name in PAIRS:
        first, second = totals.reshape(-1, 2).T
        signs = np.where(second > first, -1.0, 1.0)
        return np.asarray(np.stack([signs, -signs], axis=1).reshape(-1))
    if name == "best_of_n":
        best = np.array([int(np.nanargmax(group)) for group in totals.reshape(-1, size)])
        return np.asarray((np.arange(size) == best[:, None]).reshape(-1), np.float64)
    if settings["advantage"] == "normalise-then-sum":
        return oracle.normalise_then_sum(
            rewards,
            step.rollouts[0].weights,
            size,
            group_ddof=settings["advantage_ddof"],
            group_eps=settings["advantage_epsilon"],
            batch_ddof=settings["advantage_ddof"],
            batch_eps=settings["advantage_epsilon"],
        )
    return oracle.group_advantages(
        totals - _penalties(step, settings),
        size,
        scale=settings["advantage_scale"],
        ddof=settings["advantage_ddof"],
        eps=settings["advantage_epsilon"],
        eps_mode=settings["advantage_epsilon_mode"],
        baseline=settings["advantage_baseline"],
    )


def _penalties(step: Step, settings: Mapping[str, Any]) -> Array:
    """Return what lowers each total (R,): the KL in the reward, and the penalty of long completions."""
    penalty = np.zeros(len(step.lengths))
    if settings["kl_in_reward"] and settings["beta"]:  # of all tokens, also of a completion that does not train
        mask = np.arange(step.arrays["old"].shape[1]) < step.lengths[:, None]
        k1 = step.arrays["old"].astype(np.float64) - step.arrays["reference"]
        penalty += settings["beta"] * np.where(mask, k1, 0.0).sum(1)
    if settings.get("overlong_limit"):
        limits = {"limit": settings["overlong_limit"], "buffer": settings["overlong_buffer"]}
        penalty -= settings["overlong_weight"] * overlong_penalty(step.lengths, **limits)
    return penalty
