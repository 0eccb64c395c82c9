"""What a policy loss holds for a token besides the KL, its derivative, and the table of the algorithms by name.

A = advantage, w = off-policy weight, r = ratio of the algorithm's level. `Term` holds l w of each slot and the derivative
of the row's sum of l w by the slot's log-prob, (B, T), both before the row's weight in the step's loss.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from reference.oracle.definitions import exact, ratio
from reference.oracle.definitions.exact import Exact
from reference.oracle.definitions.logistic import sigmoid
from reference.oracle.inputs import Bools, Floats, Ints


class Batch(NamedTuple):
    """A step's tokens as (B, T), 0 where no token stands.

    Attributes:
        counts: the slots that hold a token.
        lengths: (B,), the tokens of each row.
        policy: log-probs in nats.
        log_ratio: policy - old.
        advantages: A.
        weights: w.
    """

    counts: Bools
    lengths: Ints
    policy: Floats
    log_ratio: Exact
    advantages: Floats
    weights: Floats

    @property
    def weighted_advantages(self) -> Floats:
        """The product A w."""
        return self.advantages * self.weights


class Bounds(NamedTuple):
    """Bounds of the ratio, or for GMPO of the log ratio; infinite where there is none."""

    low: float = -math.inf
    high: float = math.inf
    delta: float = math.inf


class Term(NamedTuple):
    """Per slot, (B, T): l w, which is minimised, and its slope."""

    value: Floats
    slope: Floats


def clipped(batch: Batch, r: Floats, bounds: Bounds) -> Term:
    """The loss l = -min(min(r, delta) A, clip(r, low, high) A); dl = -r A where the first is taken and r <= delta, else 0.

    PPO (arXiv 1707.06347), eq. 7; DeepSeekMath (arXiv 2402.03300), eq. 3; GSPO (arXiv 2507.18071), eqs. 5 and 13; delta:
    INTELLECT-2 (arXiv 2505.07291). A mean ratio stands n times in its row's sum and moves by r / n with each log-prob: by
    r in all. GSPO-token's ratio has the row's value and the slope of a token's own: r too.
    """
    bounded, clamped = np.minimum(r, bounds.delta), np.clip(r, bounds.low, bounds.high)
    unclipped = times(bounded, batch.advantages) <= times(clamped, batch.advantages)
    value = -times(np.where(unclipped, bounded, clamped), batch.weighted_advantages)
    slope = -times(r, batch.weighted_advantages)
    return Term(value, np.where(unclipped & (r <= bounds.delta), slope, 0.0))


def token_clipped(batch: Batch, bounds: Bounds) -> Term:
    """The clip of each token's own ratio."""
    return clipped(batch, ratio.token_ratio(batch.log_ratio), bounds)


def mean_clipped(batch: Batch, bounds: Bounds) -> Term:
    """The clip of the geometric mean of the row's ratios."""
    return clipped(batch, mean_ratio(batch), bounds)


def mean_ratio(batch: Batch) -> Floats:
    """The geometric mean of a row's ratios, on its tokens. GSPO (arXiv 2507.18071), eq. 7."""
    return ratio.on_tokens(ratio.sequence_mean(batch.log_ratio, batch.lengths), batch.counts)


def rloo(batch: Batch) -> Term:
    """The loss l = -A prod_t r_t, which stands n times in its row's sum and moves by r with each log-prob. arXiv 2402.14740."""
    value = -times(product_ratio(batch), batch.weighted_advantages)
    return Term(value, value * batch.lengths[:, None])


def rloo_clipped(batch: Batch, bounds: Bounds) -> Term:
    """The clip of the product of a row's ratios, which moves whole with each log-prob. TRL's RLOOTrainer."""
    term = clipped(batch, product_ratio(batch), bounds)
    return Term(term.value, term.slope * batch.lengths[:, None])


def product_ratio(batch: Batch) -> Floats:
    """The product of a row's ratios, on its tokens."""
    return ratio.on_tokens(ratio.sequence_product(batch.log_ratio), batch.counts)


def cispo(batch: Batch, cap: float) -> Term:
    """The loss l = -stop(min(r, cap)) A log pi, so every token keeps its gradient. MiniMax-M1 (arXiv 2506.13585), eqs. 4 and 5."""
    slope = -times(np.minimum(ratio.token_ratio(batch.log_ratio), cap), batch.weighted_advantages)
    return Term(slope * batch.policy, slope)


def sapo(batch: Batch, tau: Floats) -> Term:
    """The loss l = -(4 / tau) sigma(x) A with x = tau (r - 1); dl = -4 sigma(x) sigma(-x) r A. SAPO (arXiv 2511.20347).

    sigma(-x) falls faster than r grows: where it is 0 the slope is 0, however large r is.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        x = tau * exact.expm1(batch.log_ratio)
        closing = 4.0 * sigmoid(x) * sigmoid(-x) * ratio.token_ratio(batch.log_ratio)
    slope = -times(np.where(sigmoid(-x) == 0.0, 0.0, closing), batch.weighted_advantages)
    return Term(-times(4.0 / tau * sigmoid(x), batch.weighted_advantages), slope)


def gmpo(batch: Batch, bounds: Bounds) -> Term:
    """The loss l = -A exp(mean_t q_t) with q = min(D, high) if A > 0, else max(D, low); dl = l, 0 for a clipped token.

    GMPO (arXiv 2507.20673), eq. 4: D = policy - old is clipped in log space. The row's loss stands n times in its sum.
    """
    d, good = batch.log_ratio, batch.advantages > 0
    outside = np.where(good, d.value > bounds.high, d.value < bounds.low) & batch.counts
    q = d.only(~outside, otherwise=np.where(good, bounds.high, bounds.low))
    r = ratio.on_tokens(ratio.sequence_mean(q, batch.lengths), batch.counts)
    value = -times(r, batch.weighted_advantages)
    return Term(value, np.where(outside, 0.0, value))


def times(r: Floats, factor: Floats) -> Floats:
    """The product, 0 wherever the factor is: an overflowing ratio without advantage is no NaN."""
    return np.multiply(r, factor, out=np.zeros(factor.shape), where=factor != 0)


class Definition(NamedTuple):
    """An algorithm.

    Attributes:
        term: l w of a step's tokens and its slope; it takes the batch, and what `loss_terms` makes of its constants.
        aggregation: what a token weighs, one of `aggregation.row_weights`.
        by_row: whether a row has one advantage and one off-policy weight.
        kl: whether a KL may stand in the loss.
    """

    term: Callable[..., Term]
    aggregation: Literal["row-mean", "row-sum", "constant", "tokens", "micro-batch"] = "row-mean"
    by_row: bool = False
    kl: bool = True


DEFINITIONS: Mapping[str, Definition] = MappingProxyType(
    {
        "grpo": Definition(token_clipped),
        "dapo": Definition(token_clipped, "tokens"),
        "bnpo-trl": Definition(token_clipped, "micro-batch"),
        "dr_grpo": Definition(token_clipped, "constant"),
        "gspo": Definition(mean_clipped, by_row=True),
        "gspo-token": Definition(mean_clipped),
        "rloo": Definition(rloo, by_row=True, kl=False),
        "cispo": Definition(cispo, "tokens"),
        "sapo": Definition(sapo),
        "gmpo": Definition(gmpo, by_row=True),
        "luspo": Definition(mean_clipped, "row-sum", by_row=True),
    }
)
