"""What the engine and an algorithm know of each other: advantages of rewards, an optional filter, and a loss of log-probs.

The engine (rollout, log-probs, loop) holds an `Algorithm` and never imports a concrete one. A step's rows may be split into
parts (micro-batches): an algorithm divides by the counts of the `Whole` step, so that the parts' losses add up to the
step's loss and their gradients to its gradient.

A preference algorithm fits the same protocol. Its rows stand in pairs, 2k and 2k + 1, of one group each; the sign of the
advantage says which is chosen (+1) and which rejected (-1), and 0 in both means that the pair teaches nothing. With rollouts
(Online DPO, two completions a prompt) `advantages` makes them from rewards; offline pairs (DPO) are given by the data, chosen
first: `preference.margins.offline(count)`. A pair is never split between parts. Best-of-N gives its winner 1 and the others
0: rows of advantage 0 add nothing to its loss and may be left out of the forward pass, as long as `Whole` counts their groups.
"""

from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rewards:
    """What the reward functions said of R completions, prompt-major, `group_size` completions to a prompt.

    `values` is (R, F) float64, one column for each function, NaN for "not scored"; `weights` is (F,). `accuracy` is the column
    of the accuracy reward before penalties, if there is one. `lengths` is (R,), completion tokens with the end token.
    """

    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    group_size: int
    lengths: NDArray[np.int64]
    accuracy: int | None = None

    def total(self) -> NDArray[np.float64]:
        """The weighted sum (R,) over functions; NaN counts 0 where another function scored, all NaN stays NaN."""
        scored = ~np.isnan(self.values)
        parts = np.where(scored, self.values, 0.0) * self.weights
        return np.where(scored.any(axis=1), parts.sum(axis=1), np.nan)


@dataclass(frozen=True, slots=True)
class Whole:
    """Counts of the whole optimizer step, whatever its split into parts.

    `rows` is B with the rows that have no token; `tokens` the scored tokens; `group_tokens` (P,) those of each prompt's group;
    `parts` the number of micro-batches; `max_length` the configured longest completion.

    Only some algorithms ask for the rest: `window_tokens` is the tokens of the generation batch times this step's share of it
    (aggregation "trl"); `entropy_threshold` (nats) and `entropy_tokens` are what `entropy.threshold` says of the step, needed
    with a top-entropy mask where the step has several parts.
    """

    rows: int
    tokens: int
    group_tokens: NDArray[np.int64]
    parts: int
    max_length: int
    window_tokens: float | None = None
    entropy_threshold: float | None = None
    entropy_tokens: int | None = None


def whole_step(lengths: NDArray[np.int64], groups: NDArray[np.int64], *, parts: int, max_length: int) -> Whole:
    """The counts of a step whose rows have these scored tokens (B,) and belong to these groups (B,), numbered from 0."""
    group_tokens = np.bincount(groups, weights=lengths).astype(np.int64)
    return Whole(len(lengths), int(np.sum(lengths)), group_tokens, parts, max_length)


@dataclass(frozen=True, slots=True)
class Scored:
    """Log-probs of B completions with T slots each, of one part of a step; float32, in nats.

    `policy` (B, T) carries the gradient; `old`, `reference` and `sampling` (B, T) are constants or None: the policy that the
    ratio is against (None: one on-policy update), the base, and what the sampler recorded. `entropy` (B, T) carries a gradient.
    `mask` (B, T) is true on completion tokens up to and including the first end token. `advantages` is (B,) or (B, T).
    `groups` (B,) says which prompt of the step a row belongs to. `weights`, (B,) or (B, T), are off-policy weights that were
    computed before; without them an algorithm with a correction computes its own from `sampling`.
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
    """A part's share of the step's loss, a scalar to be minimised, and its summands before they were added."""

    value: mx.array
    policy: mx.array
    kl: mx.array
    entropy: mx.array


class Algorithm(Protocol):
    """One objective. What it needs is asked before anything is computed: no reference pass without a KL."""

    @property
    def name(self) -> str:
        """The algorithm's name in the registry."""

    @property
    def needs_reference(self) -> bool:
        """Whether log-probs of the reference policy are needed, for the loss or for `old_kl`."""

    @property
    def needs_entropy(self) -> bool:
        """Whether `Scored.entropy` is needed."""

    @property
    def needs_sampling(self) -> bool:
        """Whether `Scored.sampling` is needed."""

    def advantages(self, rewards: Rewards, *, old_kl: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """The advantages (R,); `old_kl` (R,), from `kl.in_reward`, is read where the KL belongs to the reward.

        The engine gives it where there is a reference and the algorithm's settings say `kl_in_reward`, otherwise None.
        """

    def keep(self, rewards: Rewards) -> NDArray[np.bool_]:
        """The groups (P,) that are trained on; all of them unless the algorithm filters."""

    def loss(self, part: Scored, whole: Whole) -> Loss:
        """The part's share of the loss of the whole step."""
