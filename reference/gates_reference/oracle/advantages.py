"""Advantages of completions against the other completions of their prompt."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import advantages as definition
from gates_reference.oracle.errors import advantages as errors
from gates_reference.oracle.inputs import Bools, Floats, choice, floats, number

SCALES = ("group", "batch", "none")
EPS_MODES = ("add", "inside", "threshold", "floor", "threshold-add")
BASELINES = ("mean", "leave-one-out", "batch", "none")
OF_GROUP = BASELINES[:2]


def group_advantages(
    rewards: npt.ArrayLike,
    group_size: int,
    *,
    scale: str,
    ddof: int | None,
    eps: float | None,
    eps_mode: str | None,
    baseline: str,
) -> Floats:
    """An advantage is a reward less its baseline, divided by the chosen spread.

    A NaN reward is unscored: its advantage is 0 and no mean or spread sees it. A group whose scored rewards
    are all equal (one scored reward included) has advantage 0 exactly, by rule and not by arithmetic. With a baseline
    that is not the group's this holds of the batch, and not at all where nothing is subtracted and nothing divides.

    Args:
        rewards: (B,), prompt-major groups; finite, or NaN for "not scored".
        group_size: G, completions per prompt; divides B.
        scale: "group" (spread of the group), "batch" (spread of all raw rewards) or "none" (divisor 1).
        ddof: 0 or 1, the variance divides by n - ddof; None only with scale "none".
        eps: at least 0, in units of the reward; None only with scale "none".
        eps_mode: "add" (std + eps), "inside" (sqrt(var + eps)), "threshold" (std; advantage 0 if std < eps),
            "threshold-add" (0 if std < eps, else std + eps) or "floor" (the larger of std and eps); None only with
            scale "none".
        baseline: "mean" of the group's scored rewards, "leave-one-out", the mean of the other scored ones, "batch", the
            mean of all scored rewards of the batch, or "none", 0; the last two not with scale "group".

    Returns:
        (B,) float64.

    Raises:
        ValueError: an infinite reward, no rewards, G that does not divide B, G < 2 with leave-one-out, scale "group"
            with a baseline that is not the group's, or an unknown convention.

    Source: GRPO, DeepSeekMath (arXiv 2402.03300), section 4.1.2; Dr. GRPO (arXiv 2503.20783), section 3.2 (scale
    "none"); RLOO (arXiv 2402.14740), its leave-one-out estimator; REINFORCE++ (arXiv 2501.03262), baseline "batch".
    """
    groups = _groups(rewards, group_size)
    _check_conventions(group_size, scale, ddof, eps, eps_mode, baseline)
    result, every = np.zeros(groups.shape), groups[~np.isnan(groups)]
    for group, scored, divisor in _varied(groups, scale, ddof, eps, eps_mode, baseline):
        result[group, scored] = definition.advantages(groups[group, scored], every, baseline, divisor)
    return result.reshape(-1) + 0.0  # + 0.0 turns -0.0 into 0.0


def advantage_scale(
    rewards: npt.ArrayLike,
    group_size: int,
    *,
    scale: str,
    ddof: int | None,
    eps: float | None,
    eps_mode: str | None,
    baseline: str,
) -> Floats:
    """The error of an advantage is measured in units of the group's largest absolute reward over the divisor.

    With the baseline of the batch it is the batch's largest absolute reward.

    It is 0, "exact", where the advantage is 0 by rule: unscored, constant group, spread below the threshold.

    Args:
        rewards: as in `group_advantages`.
        group_size: as in `group_advantages`.
        scale: as in `group_advantages`.
        ddof: as in `group_advantages`.
        eps: as in `group_advantages`.
        eps_mode: as in `group_advantages`.
        baseline: as in `group_advantages`.

    Returns:
        (B,) float64, at least 0.

    Raises:
        ValueError: as `group_advantages`.

    Source: docs/definitions.md, "Accuracy": S = max|R_g| / (std with eps).
    """
    groups = _groups(rewards, group_size)
    _check_conventions(group_size, scale, ddof, eps, eps_mode, baseline)
    result, every = np.zeros(groups.shape), groups[~np.isnan(groups)]
    for group, scored, divisor in _varied(groups, scale, ddof, eps, eps_mode, baseline):
        result[group, scored] = errors.scale(every if baseline == "batch" else groups[group, scored], divisor)
    return result.reshape(-1)


def normalise_then_sum(
    rewards: npt.ArrayLike,
    weights: npt.ArrayLike,
    group_size: int,
    *,
    group_ddof: int,
    group_eps: float,
    batch_ddof: int,
    batch_eps: float,
) -> Floats:
    """Each reward function is normalised in its group, then their weighted sum is normalised over the batch.

    A NaN counts 0 in the weighted sum; a row is unscored, with advantage 0, only if all its rewards are NaN.
    Both stages divide by std + eps. A weighted sum that is the same in every scored row gives 0.

    Args:
        rewards: (B, F), one column per reward function; finite, or NaN for "not scored".
        weights: (F,), finite.
        group_size: G, divides B.
        group_ddof: 0 or 1, of the group's std.
        group_eps: added to the group's std.
        batch_ddof: 0 or 1, of the batch's std.
        batch_eps: added to the batch's std.

    Returns:
        (B,) float64.

    Raises:
        ValueError: shapes that do not fit, infinite values, an unknown convention.

    Source: GDPO (arXiv 2601.05242), group-wise normalisation per reward, then batch-wise of the weighted sum.
    """
    columns, factors = _columns(rewards, weights)
    z_scores = [
        group_advantages(
            column, group_size, scale="group", ddof=group_ddof, eps=group_eps, eps_mode="add", baseline="mean"
        )
        for column in columns.T
    ]
    return group_advantages(
        definition.weighted_sums(columns, np.stack(z_scores, axis=1), factors),
        len(columns),
        scale="group",
        ddof=batch_ddof,
        eps=batch_eps,
        eps_mode="add",
        baseline="mean",
    )


def normalise_then_sum_scale(
    rewards: npt.ArrayLike,
    weights: npt.ArrayLike,
    group_size: int,
    *,
    group_ddof: int,
    group_eps: float,
    batch_ddof: int,
    batch_eps: float,
) -> Floats:
    """The error of the two-stage advantage is the first stage's largest error over the second stage's divisor.

    Args:
        rewards: as in `normalise_then_sum`.
        weights: as in `normalise_then_sum`.
        group_size: as in `normalise_then_sum`.
        group_ddof: as in `normalise_then_sum`.
        group_eps: as in `normalise_then_sum`.
        batch_ddof: as in `normalise_then_sum`.
        batch_eps: as in `normalise_then_sum`.

    Returns:
        (B,) float64: max over rows of sum_f |w_f| S_f, divided by the batch std + eps; 0 where unscored or constant.

    Raises:
        ValueError: as `normalise_then_sum`.

    Source: docs/definitions.md, "Accuracy", applied to both stages.
    """
    columns, factors = _columns(rewards, weights)
    z_scores, scales = (
        np.stack(
            [
                stage(
                    column, group_size, scale="group", ddof=group_ddof, eps=group_eps, eps_mode="add", baseline="mean"
                )
                for column in columns.T
            ],
            axis=1,
        )
        for stage in (group_advantages, advantage_scale)
    )
    summed = definition.weighted_sums(columns, z_scores, factors)
    scored = ~np.isnan(summed)
    if _is_constant(summed[scored]):
        return np.zeros(len(columns))
    divisor = definition.divisor(summed[scored], batch_ddof, batch_eps, "add")
    return np.where(scored, errors.two_stage_scale(scales, factors, divisor), 0.0)


def _groups(rewards: npt.ArrayLike, group_size: int) -> Floats:
    flat = floats("rewards", rewards, ndim=1)
    if group_size < 1:
        raise ValueError(f"`group_size` is {group_size}, must be at least 1")
    if not flat.size or flat.size % group_size:
        raise ValueError(f"`rewards` has {flat.size} elements, must be a positive multiple of group_size {group_size}")
    if np.any(np.isinf(flat)):
        index = int(np.flatnonzero(np.isinf(flat))[0])
        raise ValueError(f"`rewards` is {flat[index]}, must be finite, or NaN for unscored (at index {index})")
    return flat.reshape(-1, group_size)


def _columns(rewards: npt.ArrayLike, weights: npt.ArrayLike) -> tuple[Floats, Floats]:
    columns = floats("rewards", rewards, ndim=2)
    factors = floats("weights", weights, shape=columns.shape[1:])
    if not (factors.size and np.all(np.isfinite(factors))):
        raise ValueError(f"`weights` is {factors.tolist()}, must be finite and at least one")
    return columns, factors


def _check_conventions(
    group_size: int, scale: str, ddof: int | None, eps: float | None, eps_mode: str | None, baseline: str
) -> None:
    choice("scale", scale, SCALES)
    choice("baseline", baseline, BASELINES)
    if baseline == "leave-one-out" and group_size < 2:
        raise ValueError(f"`group_size` is {group_size}, must be at least 2 with baseline 'leave-one-out'")
    if scale == "group" and baseline not in OF_GROUP:
        raise ValueError(f"`scale` is 'group', must be 'batch' or 'none' with baseline {baseline!r}")
    if scale != "none":
        choice("ddof", ddof, (0, 1))
        choice("eps_mode", eps_mode, EPS_MODES)
        number("eps", eps, least=0)


def _is_constant(scored: Floats) -> bool:
    return scored.size < 2 or bool(scored.max() == scored.min())


def _varied(
    groups: Floats, scale: str, ddof: int | None, eps: float | None, eps_mode: str | None, baseline: str
) -> Iterator[tuple[int, Bools, float]]:
    """The groups that are not 0 by rule: which rewards are scored, and the divisor of their advantages."""
    every = groups[~np.isnan(groups)]
    of_batch: float | None = None  # the divisor with the batch's spread
    for group, row in enumerate(groups):
        scored = ~np.isnan(row)
        compared = row[scored] if baseline in OF_GROUP else every
        if not scored.any() or (_is_constant(compared) and (baseline, scale) != ("none", "none")):
            continue
        if scale == "none":
            yield group, scored, 1.0
            continue
        assert ddof is not None
        assert eps is not None
        assert eps_mode is not None
        if scale == "group":
            yield group, scored, definition.divisor(row[scored], ddof, eps, eps_mode)
            continue
        if of_batch is None:
            of_batch = definition.divisor(every, ddof, eps, eps_mode)
        yield group, scored, of_batch
