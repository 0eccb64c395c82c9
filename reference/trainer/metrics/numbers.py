"""The numbers of a step. Those of `of_step` are a function of the run's configuration; those of `of_time` are the machine's."""

import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer.engine.rollout import Generation
from reference.trainer.engine.step import Learned
from reference.trainer.metrics import ratios

Numbers = dict[str, float]
RATIO = ("mean", "max_abs", "p99_abs", "k3", "chi2", "ess_per_n", "mult_err")
SHARES = ("outside_low", "outside_high", "clipped_low", "clipped_high")


def of_step(
    generation: Generation,
    learned: Learned,
    names: Sequence[str],
    learning_rate: float,
    bounds: tuple[float, float],
    level: str = "token",
    *,
    pairs: bool = False,
) -> Numbers:
    """Loss, rewards, advantages, ratios, lengths and groups of one step; `names` are the reward functions, `bounds` the clip's.

    `level` says what the clip acts on: the ratio of each "token", or the mean ratio of its completion ("seq_mean"); `pairs`
    whether the advantages are preferences.
    """
    return {
        "learning_rate": learning_rate,
        **_updates(learned),
        **_rewards(generation, names),
        **_advantages(generation, learned),
        **_lengths(generation),
        **_distribution(generation, learned, bounds, level),
        **(_margins(generation, learned) if pairs else {}),
        "rollouts": generation.rounds,
        "groups_kept": len(generation.prompts),
        "groups_dropped": generation.dropped,
    }


def _mean(values: Sequence[float] | NDArray[np.float64]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _std(values: NDArray[np.float64]) -> float:
    return float(np.std(values)) if len(values) else float("nan")


def _updates(learned: Learned) -> Numbers:
    """Means over the optimizer steps that were applied."""
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
    """Mean and std over scored samples, of the sum and of each function; how many are unscored; the groups that teach nothing."""
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
    flat = [bool(np.isnan(g).all() or np.nanmax(g) == np.nanmin(g)) for g in groups]
    return numbers | {"zero_variance_groups": sum(flat)}


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
    """How far the policy is from the old one and from the sampler's, and its entropy, on completion tokens of the last pass.

    `entropy_sampled` is the mean of -log p of the sampled tokens, an estimate that needs no further pass; `entropy` is exact,
    and there if the algorithm needs it. The ratios are those of tokens; `outside_*` and `clipped_*` are the shares of tokens whose
    ratio, of the level that the algorithm clips, is beyond its bounds. `sampler_*` are against the unfiltered distribution that
    was drawn from, at `rollout.temperature`, whatever a correction is against: tokens that are scored at another temperature
    than they were drawn at are seen here.
    """
    if learned.policy is None or learned.old is None or not generation.lengths.sum():
        return {}
    width = learned.policy.shape[1]
    live = _live(generation, width)
    sampled = bool(
        np.isfinite(generation.temperature_scaled[:, :width][live]).all()
    )  # pairs of the data were sampled by nobody
    numbers = {"entropy_sampled": -float(generation.temperature_scaled[:, :width][live].mean())} if sampled else {}
    if learned.entropy is not None:
        numbers["entropy"] = float(learned.entropy[live].astype(np.float64).mean())
    policy = learned.policy.astype(np.float64)
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


def _live(generation: Generation, width: int) -> NDArray[np.bool_]:
    """Which slots (R, width) hold a completion's token."""
    return np.arange(width)[None, :] < generation.lengths[:, None]


def _of_rows(policy: NDArray[np.float64], old: NDArray[np.float64], live: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Log-probs (R, T) whose log-ratio to `old` is its completion's mean in every token."""
    moved = np.where(live, policy - old, 0.0).sum(axis=1) / np.maximum(live.sum(axis=1), 1)
    return old + moved[:, None]


def _margins(generation: Generation, learned: Learned) -> Numbers:
    """How far the chosen completion of a pair is preferred to the rejected one, over the reference, in nats; and how often.

    The advantages are +1 and -1 in a pair that has a preference, and nothing is said where none has. A loss without a reference
    counts the policy's log-probs alone, as here. Of the last pass.
    """
    signs = learned.advantages.reshape(-1, 2)
    signed = np.abs(signs).sum(axis=1) == 2
    if learned.policy is None or not signed.any():
        return {}
    policy = learned.policy.astype(np.float64)
    moved = policy if learned.reference is None else policy - learned.reference
    of_rows = np.where(_live(generation, policy.shape[1]), moved, 0.0).sum(axis=1).reshape(-1, 2)
    margins = (of_rows * signs).sum(axis=1)[signed]
    return {"margin_mean": _mean(margins), "margin_positive_share": _mean((margins > 0).astype(np.float64))}


def of_time(seconds: Mapping[str, float], generation: Generation) -> Numbers:
    """Seconds of each phase, tokens per second of the rollouts and of the whole, peak memory in bytes."""
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


def bounds(algorithm: Any) -> tuple[float, float]:
    """The clip's widths of an algorithm that has some, else 0.2 on both sides: from where on a ratio is called outside."""
    found: tuple[float, float] | None = getattr(algorithm, "clip_widths", None)
    return (0.2, 0.2) if found is None else found


def level(algorithm: Any) -> str:
    """What the algorithm's clip acts on: "token" or "seq_mean"."""
    return str(getattr(algorithm, "clip_level", "token"))


def pairs(algorithm: Any) -> bool:
    """Whether the algorithm learns from pairs, of which one completion is chosen and the other rejected."""
    return bool(getattr(algorithm, "pairs", False))
