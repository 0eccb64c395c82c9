"""The interface between the engine and an algorithm: advantages from rewards, an optional filter, a loss of log-probs.

The engine (rollout, log-probs, loop) holds an `Algorithm` and never imports a concrete one. The rows of an optimizer step may be
split into micro-batches. An algorithm divides by the counts of the whole step (`StepTotals`), so that the losses of the
micro-batches add up to the step's loss, and their gradients to its gradient.

A preference algorithm has the same interface. Rows 2k and 2k + 1 are a pair, and each pair is a group of its own. The sign of the
advantage marks the chosen (+1) and the rejected (-1) completion; 0 in both means that the pair has no preference. Online DPO
computes these signs from rewards in `advantages`; offline pairs (DPO) come chosen first (`preference.margins.offline`). A pair is
never split between micro-batches. Best-of-N gives the winner of a group 1 and the others 0.
"""

from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewards of R completions, prompt-major, `group_size` completions per prompt.

    Attributes:
        values: (R, F) float64, one column for each reward function; NaN means "not scored".
        weights: (F,), one for each function.
        group_size: completions per prompt.
        lengths: (R,), completion tokens including the end token.
        accuracy: the column of the accuracy reward before penalties, if there is one.
    """

    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    group_size: int
    lengths: NDArray[np.int64]
    accuracy: int | None = None

    def total(self) -> NDArray[np.float64]:
        """Return the weighted sum (R,) over functions; NaN counts as 0 unless all functions gave NaN, then the sum is NaN."""
        scored = ~np.isnan(self.values)
        parts = np.where(scored, self.values, 0.0) * self.weights
        return np.where(scored.any(axis=1), parts.sum(axis=1), np.nan)


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Counts of a whole optimizer step, however it is split into micro-batches.

    Attributes:
        rows: all completions, including those without a token.
        tokens: the scored tokens.
        group_tokens: (P,), the scored tokens of each prompt's group.
        micro_batches: how many micro-batches the step has.
        max_length: the configured longest completion.
        window_tokens: the tokens of the generation batch times this step's share of it; only aggregation "trl" reads it.
        width: T, the token slots of the step's widest micro-batch; only aggregation "width" reads it.
        entropy_threshold: in nats, from `entropy.threshold`; needed for a top-entropy mask if there are several micro-batches.
        entropy_tokens: how many tokens of the step reach that threshold; needed in the same case.
    """

    rows: int
    tokens: int
    group_tokens: NDArray[np.int64]
    micro_batches: int
    max_length: int
    window_tokens: float | None = None
    width: int | None = None
    entropy_threshold: float | None = None
    entropy_tokens: int | None = None


def step_totals(
    lengths: NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    micro_batches: int,
    max_length: int,
    window_tokens: float | None = None,
    width: int | None = None,
) -> StepTotals:
    """Count a step whose rows have `lengths` (B,) scored tokens and belong to `groups` (B,), numbered from 0."""
    group_tokens = np.bincount(groups, weights=lengths).astype(np.int64)
    return StepTotals(len(lengths), int(np.sum(lengths)), group_tokens, micro_batches, max_length, window_tokens, width)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Log-probs of the B completions of a micro-batch, T token slots each; float32, in nats.

    Attributes:
        policy: (B, T), carries the gradient.
        mask: (B, T), true on completion tokens up to and including the first end token.
        advantages: (B,) or (B, T).
        groups: (B,), the prompt of the step that a row belongs to.
        old: (B, T), constant; the policy that the ratio is taken against. None means one on-policy update.
        reference: (B, T), constant; the reference policy.
        sampling: (B, T), constant; what the sampler recorded.
        entropy: (B, T), carries a gradient.
        weights: (B,) or (B, T), off-policy weights; without them an algorithm with a correction computes them from `sampling`.
    """

    policy: mx.array
    mask: mx.array
    advantages: mx.array
    groups: NDArray[np.int64]
    old: mx.array | None = None
    reference: mx.array | None = None
    sampling: mx.array | None = None
    entropy: mx.array | None = None
    weights: mx.array | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """A micro-batch's share of the step's loss, a scalar to be minimised, and the summands of that share."""

    value: mx.array
    policy: mx.array
    kl: mx.array
    entropy: mx.array


class Algorithm:
    """One objective, and what the engine must compute for it; a subclass changes what differs.

    Attributes:
        name: the name in the registry.
        settings: a dataclass of the algorithm's own.
        needs_reference: log-probs of the reference policy are read, by the loss or for the KL in the reward.
        needs_entropy: `MicroBatch.entropy` is read.
        needs_sampling: `MicroBatch.sampling` is read.
        kl_in_reward: `advantages` takes the summed KL of each completion, which the engine computes before the first update.
        entropy_share: the share of a step's tokens, those of highest entropy, that train the policy; 1 means all.
        masks_truncated: completions without an end token are left out of the loss.
        pairs: advantages are preferences within pairs of rows.
        clip_level: which ratio the metrics compare with the clip: each token's, or the mean over its completion.
    """

    name: str = ""
    settings: Any = None
    needs_reference: bool = False
    needs_entropy: bool = False
    needs_sampling: bool = False
    kl_in_reward: bool = False
    entropy_share: float = 1.0
    masks_truncated: bool = False
    pairs: bool = False
    clip_level: Literal["token", "seq_mean"] = "token"

    @property
    def clip_widths(self) -> tuple[float, float]:
        """How far below and above 1 the metrics count a ratio as clipped; 0.2 where nothing is clipped."""
        return 0.2, 0.2

    def advantages(self, rewards: Rewards, *, old_kl: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """Return the advantages (R,); `old_kl` (R,) is the summed KL of each completion if `kl_in_reward`, otherwise None."""
        raise NotImplementedError

    def keep(self, rewards: Rewards) -> NDArray[np.bool_]:
        """Return which groups (P,) are trained on: all of them unless the algorithm filters."""
        return np.ones(len(rewards.values) // rewards.group_size, np.bool_)

    def loss(self, batch: MicroBatch, totals: StepTotals) -> Loss:
        """Return the micro-batch's share of the loss of the whole step."""
        raise NotImplementedError
