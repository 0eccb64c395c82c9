r"""Best-of-N, distilled: sample n completions, keep the best, and train on it by likelihood (Stiennon et al. 2020, 2009.01325).

    loss = 1/P sum_p (1/n_w) sum_t -policy_t of the prompt's winner w

The winner has the highest score that is not NaN; of equal scores the lowest index wins. A group without a score is an error.
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import options, ratio
from gates_reference.trainer.algorithms.protocol import Algorithm, Loss, MicroBatch, Rewards, StepTotals


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings:
    """No settings."""


class BestOfN(Algorithm):
    """The advantages are 1 for the winner of a group and 0 for the others."""

    name = "best_of_n"

    def __init__(self, settings: Settings) -> None:
        """Keep the settings."""
        self.settings = settings

    def advantages(self, rewards: Rewards, *, old_kl: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """Return 1 for the winner of each group and 0 for the others, (R,)."""
        del old_kl
        advantages = np.zeros(len(rewards.values), np.float32)
        advantages[winners(rewards.total(), rewards.group_size)] = 1.0
        return advantages

    def loss(self, batch: MicroBatch, totals: StepTotals) -> Loss:
        """Return the micro-batch's share of the winners' mean negative log-prob, averaged over prompts."""
        policy = ratio.select(trained(batch), batch.policy)
        counts = mx.maximum(batch.mask.sum(axis=1, keepdims=True).astype(mx.float32), 1.0)
        value = double.total(-policy / counts) / len(totals.group_tokens)
        nothing = mx.zeros(())
        return Loss(value, value, nothing, nothing)


def trained(batch: MicroBatch) -> mx.array:
    """Return which tokens (B, T) train: those of winners, whose advantage is above 0."""
    return batch.mask & (batch.advantages.reshape(-1, 1) > 0)


def winners(scores: NDArray[np.float64], group_size: int) -> NDArray[np.int64]:
    """Return the row of each group's best completion (P,).

    Raises:
        ValueError: a group has no score, or `group_size` does not divide the number of scores.
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
