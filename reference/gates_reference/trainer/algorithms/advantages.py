"""Advantages of completions from their rewards, computed by rlkernels.

GRPO: (R - mean) / (std + epsilon) of the group (arXiv 2402.03300, section 4.1.2). Dr. GRPO: R - mean (arXiv 2503.20783). RLOO:
R minus the mean of the other completions (arXiv 2402.14740). REINFORCE++: R minus the mean of the batch, over the deviation of the
batch (arXiv 2501.03262). GDPO: each reward function is normalised in its group, and their weighted sum over the batch (arXiv
2601.05242). A NaN reward means "not scored"; a group whose scored rewards are all equal gives 0.
"""

import numpy as np
from numpy.typing import NDArray

import rlkernels
from gates_reference.trainer.algorithms.options import Settings
from gates_reference.trainer.algorithms.protocol import Rewards


def of_rewards(rewards: Rewards, settings: Settings, *, old_kl: NDArray[np.float64] | None) -> NDArray[np.float32]:
    """Return the advantages (R,); if the KL is in the reward, subtract beta times `old_kl` (R,) first.

    Raises:
        ValueError: the KL is in the reward and `old_kl` is None, or the reward functions are normalised one by one.
    """
    if settings.advantage == "normalise-then-sum":
        if settings.kl_in_reward and settings.beta > 0:
            raise ValueError(
                "kl_in_reward has no place among rewards that are normalised one by one; use advantage 'group'"
            )
        ddof, epsilon = settings.advantage_ddof, settings.advantage_epsilon
        return normalised_then_summed(
            rewards.values, rewards.weights, rewards.group_size, group=(ddof, epsilon), batch=(ddof, epsilon)
        )
    return grouped(penalised(rewards.total(), settings, old_kl), rewards.group_size, settings)


def penalised(
    totals: NDArray[np.float64], settings: Settings, old_kl: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Subtract beta times the summed k1 of each completion from the rewards (R,) if the KL is in the reward."""
    if not settings.kl_in_reward or settings.beta == 0:
        return totals
    if old_kl is None:
        raise ValueError(
            f"kl_in_reward with beta {settings.beta} needs old_kl, found None; give ratio.kl_in_reward(...)"
        )
    return totals - settings.beta * np.asarray(old_kl, np.float64)


def grouped(totals: NDArray[np.float64], group_size: int, settings: Settings) -> NDArray[np.float32]:
    """Return the advantages of one reward (R,) with the scale, deviation and baseline of the settings."""
    baseline = settings.advantage_baseline
    values = rlkernels.group_advantages(
        np.ascontiguousarray(totals, np.float64),
        len(totals) if baseline == "batch" else group_size,  # with the batch as one group its mean is the baseline
        scale=settings.advantage_scale,
        ddof=settings.advantage_ddof,
        eps=settings.advantage_epsilon,
        eps_mode=settings.advantage_epsilon_mode,
        baseline="mean" if baseline == "batch" else baseline,
    )
    return np.asarray(values).astype(np.float32)


def normalised_then_summed(
    values: NDArray[np.float64],
    weights: NDArray[np.float64],
    group_size: int,
    *,
    group: tuple[int, float],
    batch: tuple[int, float],
) -> NDArray[np.float32]:
    """Return the advantages (R,) of rewards (R, F): z-scores per group, their sum by weights (F,), z-scores over the batch.

    `group` and `batch` are (ddof, epsilon) of the two normalisations; epsilon is added to the deviation.
    """
    advantages = rlkernels.normalise_then_sum(
        np.ascontiguousarray(values, np.float64),
        np.ascontiguousarray(weights, np.float64),
        group_size,
        group_ddof=group[0],
        group_eps=group[1],
        batch_ddof=batch[0],
        batch_eps=batch[1],
    )
    return np.asarray(advantages).astype(np.float32)
