"""The numbers of a step: `of_step` depends only on the run's configuration, `of_time` on the machine."""

import resource
import sys
from collections.abc import Mapping, Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer.algorithms.protocol import Algorithm
from gates_reference.trainer.engine.rollout import Generation
from gates_reference.trainer.engine.step import Learned
from gates_reference.trainer.metrics import ratios

Numbers = dict[str, float]
RATIO = ("mean", "max_abs", "p99_abs", "k3", "chi2", "ess_per_n", "mult_err")
SHARES = ("outside_low", "outside_high", "clipped_low", "clipped_high")


def of_step(
    generation: Generation,
    learned: Learned,
    names: Sequence[str],
    learning_rate: float,
    algorithm: Algorithm,
) -> Numbers:
    """Return loss, rewards, advantages, ratios, lengths and groups of one step; `names` are the reward functions."""
    return {
        "learning_rate": learning_rate,
        **_updates(learned),
        **_rewards(generation, names),
        **_advantages(generation, learned),
        **_lengths(generation),
        **_distribution(generation, learned, algorithm.clip_widths, algorithm.clip_level),
        **(_margins(generation, learned) if algorithm.pairs else {}),
        "rollouts": generation.rounds,
        "groups_kept": len(generation.prompts),
        "groups_dropped": generation.dropped,
    }


def _mean(values: Sequence[float] | NDArray[np.float64]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _std(values: NDArray[np.float64]) -> float:
    return float(np.std(values)) if len(values) else float("nan")


def _updates(learned: Learned) -> Numbers:
    """Return means over the optimizer steps that were applied."""
    applied = [update for update in learned.updates if not update.skipped]
    means = {f: _mean([getattr(u, f) for u in applied]) for f in ("loss", "policy", "kl", "entropy", "gradient_norm")}
    return {
        "loss": means["loss"],
        "loss_policy": means["policy"],
        "loss_kl": means["kl"],
        "loss_entropy": means["entropy"],
        "gradient_norm": means["gradient_norm"],
        "updates": len(applied),
        "updates_skipped": len(learned.updates) - len(applied),
    }


def _rewards(generation: Generation, names: Sequence[str]) -> Numbers:
    """Return mean and std of the total and of each function over scored samples, and counts of unscored and equal rewards.

    `signal_share` is the share of a step's groups that are trained on and hold two different rewards; groups that dynamic sampling
    dropped and could not replace have no signal.
    """
    total = generation.rewards.total()
    scored = total[~np.isnan(total)]
    numbers: Numbers = {
        "reward_mean": _mean(scored),
        "reward_std": _std(scored),
        "unscored_share": _mean(np.isnan(total).astype(np.float64)),
    }
    for n, name in enumerate(names):
        column = generation.rewards.values[:, n]
        column = column[~np.isnan(column)]
        numbers[f"reward_{name}_mean"] = _mean(column)
        numbers[f"reward_{name}_std"] = _std(column)
    groups = total.reshape(-1, generation.group_size)
    flat = sum(bool(np.isnan(g).all() or np.nanmax(g) == np.nanmin(g)) for g in groups)
    numbers["zero_variance_groups"] = flat
    if generation.group_size > 1:
        wanted = generation.taken / generation.rounds  # the same in every rollout of a step
        numbers["signal_share"] = (len(groups) - flat) / wanted
    return numbers


def _advantages(generation: Generation, learned: Learned) -> Numbers:
    values = learned.advantages.astype(np.float64)
    return {
        "advantage_mean": _mean(values),
        "advantage_std": _std(values),
        "advantage_max_abs": float(np.abs(values).max(initial=0.0)),
        "rows": len(generation.lengths),
    }


def _lengths(generation: Generation) -> Numbers:
    lengths = generation.lengths.astype(np.float64)
    return {
        "tokens": int(generation.lengths.sum()),
        "length_mean": _mean(lengths),
        "length_min": float(lengths.min(initial=np.inf)),
        "length_max": float(lengths.max(initial=-np.inf)),
        "truncated_share": _mean((~generation.ended).astype(np.float64)),
    }


def _distribution(generation: Generation, learned: Learned, bounds: tuple[float, float], level: str) -> Numbers:
    """Return the policy's distance from the old and from the sampler's policy, and its entropy, on tokens of the last pass's loss.

    `entropy_sampled` is the mean -log p of the sampled tokens, an estimate that needs no further pass. `entropy` is exact and given if
    the algorithm needs it. `kl` is the mean k3 to the reference policy, before beta and whatever estimator the loss has. The ratios are
    per token; `outside_*` and `clipped_*` are the shares of tokens whose ratio, at the level
    that the algorithm clips, is outside its bounds. `sampler_*` compare with the sampler's unfiltered log-probs at
    `rollout.temperature`, so that scoring at another temperature shows up here.
    """
    lengths = generation.lengths if learned.lengths is None else learned.lengths
    if learned.policy is None or learned.old is None or not lengths.sum():
        return {}
    width = learned.policy.shape[1]
    live = _live(lengths, width)
    sampled = bool(
        np.isfinite(generation.temperature_scaled[:, :width][live]).all()
    )  # pairs of the data were sampled by nobody
    numbers = {"entropy_sampled": -float(generation.temperature_scaled[:, :width][live].mean())} if sampled else {}
    if learned.entropy is not None:
        numbers["entropy"] = float(learned.entropy[live].astype(np.float64).mean())
    policy = learned.policy.astype(np.float64)
    if learned.reference is not None:
        reference = learned.reference.astype(np.float64)
        numbers["kl"] = ratios.statistics(reference, policy, live, bounds=bounds, advantages=None)["k3"]
    gains = learned.advantages.astype(np.float64)
    old = learned.old.astype(np.float64)
    ratio = ratios.statistics(policy, old, live, bounds=bounds, advantages=gains)
    clipped = ratio
    if level == "seq_mean":
        clipped = ratios.statistics(_of_rows(policy, old, live), old, live, bounds=bounds, advantages=gains)
    numbers |= {f"ratio_{name}": ratio[name] for name in RATIO} | {f"ratio_{name}": clipped[name] for name in SHARES}
    numbers |= {f"ratio_{name}": ratio[name] for name in ("min_sequence_ratio", "max_sequence_ratio")}
    if not sampled:
        return numbers
    sampler = ratios.statistics(policy, generation.temperature_scaled[:, :width], live, bounds=bounds, advantages=gains)
    return numbers | {f"sampler_{name}": sampler[name] for name in RATIO}


def _live(lengths: NDArray[np.int64], width: int) -> NDArray[np.bool_]:
    """Return which slots (R, width) hold a completion's token."""
    return np.arange(width)[None, :] < lengths[:, None]


def _of_rows(policy: NDArray[np.float64], old: NDArray[np.float64], live: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return log-probs (R, T) whose log-ratio to `old` is the completion's mean log-ratio at every token."""
    moved = np.where(live, policy - old, 0.0).sum(axis=1) / np.maximum(live.sum(axis=1), 1)
    return old + moved[:, None]


def _margins(generation: Generation, learned: Learned) -> Numbers:
    """Return by how many nats, and how often, the policy prefers chosen completions more than the reference does.

    The values are those of the last pass, over pairs with a preference (advantages +1 and -1); without any the result is empty.
    Without a reference the policy's log-probs are used alone, as in the loss.
    """
    signs = learned.advantages.reshape(-1, 2)
    signed = np.abs(signs).sum(axis=1) == 2
    if learned.policy is None or not signed.any():
        return {}
    policy = learned.policy.astype(np.float64)
    moved = policy if learned.reference is None else policy - learned.reference
    of_rows = np.where(_live(generation.lengths, policy.shape[1]), moved, 0.0).sum(axis=1).reshape(-1, 2)
    margins = (of_rows * signs).sum(axis=1)[signed]
    return {"margin_mean": _mean(margins), "margin_positive_share": _mean((margins > 0).astype(np.float64))}


def of_time(seconds: Mapping[str, float], generation: Generation) -> Numbers:
    """Return seconds per phase, tokens per second of the rollouts and of the whole step, and peak memory in bytes."""
    total = sum(seconds.values())
    tokens = float(generation.lengths.sum())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        **{f"seconds_{phase}": value for phase, value in seconds.items()},
        "tokens_per_second": tokens / total if total else float("nan"),
        "rollout_tokens_per_second": tokens / seconds["rollout"] if seconds.get("rollout") else float("nan"),
        "peak_device_bytes": int(mx.get_peak_memory()),
        "peak_process_bytes": int(peak),
    }
