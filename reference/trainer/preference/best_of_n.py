r"""Best-of-N, distilled: sample n completions, keep the best, and train on it by likelihood (Stiennon et al. 2020, 2009.01325).

    loss = 1/P sum_p (1/n_w) sum_t -policy_t of the prompt's winner w

The winner has the highest score that is not NaN, and the lowest index of several; without any score it is an error.
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from reference.trainer.algorithms import options, pairs, ratio
from reference.trainer.algorithms.protocol import Loss, Rewards, Scored, Whole


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings:
    """There is nothing to choose."""


class BestOfN:
    """An `Algorithm` whose advantages are 1 for the winner of a group and 0 for the others."""

    name = "best_of_n"
    needs_reference = False
    needs_entropy = False
    needs_sampling = False

    def __init__(self, settings: Settings) -> None:
        """Keep the settings."""
        self.settings = settings

    def advantages(self, rewards: Rewards, *, old_kl: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """1 for the winner of each group and 0 elsewhere, (R,)."""
        del old_kl
        found = np.zeros(len(rewards.values), np.float32)
        found[winners(rewards.total(), rewards.group_size)] = 1.0
        return found

    def keep(self, rewards: Rewards) -> NDArray[np.bool_]:
        """Every group (P,) has a winner."""
        return np.ones(len(rewards.values) // rewards.group_size, np.bool_)

    def loss(self, part: Scored, whole: Whole) -> Loss:
        """The part's share of the mean over prompts of their winner's mean negative log-prob."""
        chosen = part.mask & (part.advantages.reshape(-1, 1) > 0)
        policy = ratio.select(chosen, part.policy)
        counts = mx.maximum(part.mask.sum(axis=1, keepdims=True).astype(mx.float32), 1.0)
        value = pairs.total(-policy / counts) / len(whole.group_tokens)
        nothing = mx.zeros(())
        return Loss(value, value, nothing, nothing)


def winners(scores: NDArray[np.float64], group_size: int) -> NDArray[np.int64]:
    """The row of each group's best completion (P,).

    Raises:
        ValueError: a group without a score, or a size that does not divide the scores.
    """
    if group_size < 1 or not scores.size or scores.size % group_size:
        raise ValueError(f"scores have {scores.size} elements, must be a positive multiple of group_size {group_size}")
    groups = scores.reshape(-1, group_size)
    known = ~np.isnan(groups)
    lost = np.flatnonzero(~known.any(axis=1))
    if lost.size:
        raise ValueError(f"scores of group {int(lost[0])} are all NaN, must have at least one score; check its reward")
    best = np.max(np.where(known, groups, -np.inf), axis=1, keepdims=True)
    first = np.argmax(known & (groups == best), axis=1)
    return np.asarray(np.arange(len(groups)) * group_size + first, np.int64)
