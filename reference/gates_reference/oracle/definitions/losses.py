"""What a policy loss holds for a token besides the KL, its derivative, and the table of the algorithms by name.

A = advantage, w = off-policy weight, r = ratio of the algorithm's level. `Term` holds l w of each slot and the derivative
of the row's sum of l w by the slot's log-prob, (B, T), both before the row's weight in the step's loss.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from gates_reference.oracle.definitions import exact, ratio
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.definitions.logistic import sigmoid
from gates_reference.oracle.inputs import Bools, Floats, Ints


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


class Taper(NamedTuple):
    """The power and the decay of a gamma weight, each (B, T) by the sign of the advantage."""

    k: Floats
    rate: Floats


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


def product_ratio(batch: Batch) -> Floats:
    """The product of a row's ratios, on its tokens."""
    return ratio.on_tokens(ratio.sequence_product(batch.log_ratio), batch.counts)


def dual_clipped(batch: Batch, bounds: Bounds) -> Term:
    """The clip of each token's own ratio, and where A < 0 no loss above -delta A. arXiv 1912.09729, eq. 5."""
    r, a, w = ratio.token_ratio(batch.log_ratio), batch.advantages, batch.weights
    free, held = -times(r, a), -times(np.clip(r, bounds.low, bounds.high), a)
    once, most = np.maximum(free, held), np.where(a < 0, -times(np.full(a.shape, bounds.delta), a), math.inf)
    alive = (free >= held) & (free <= most)
    return Term(times(np.minimum(once, most), w), np.where(alive, times(free, w), 0.0))


def reinforce(batch: Batch) -> Term:
    """The loss l = -A log pi, whatever policy has sampled. R. J. Williams, Machine Learning 8, 1992."""
    return weighed_log_prob(batch, np.ones(batch.counts.shape))


def weighed_log_prob(batch: Batch, weight: Floats) -> Term:
    """The loss l = -stop(weight) A log pi, so that every token keeps its gradient."""
    slope = -times(weight, batch.weighted_advantages)
    return Term(slope * batch.policy, slope)


def cispo(batch: Batch, bounds: Bounds) -> Term:
    """The loss l = -stop(clip(r, low, high)) A log pi. MiniMax-M1 (arXiv 2506.13585), eqs. 4 and 5, which has no lower bound."""
    r = ratio.token_ratio(batch.log_ratio)
    return weighed_log_prob(batch, np.minimum(np.maximum(r, bounds.low), bounds.high))


def vespo(batch: Batch, taper: Taper) -> Term:
    """The loss l = -stop(exp(lambda) W**k exp(-lambda W)) A log pi, W = prod_t r_t. VESPO (arXiv 2602.10693); TRL's "vespo"."""
    sums = exact.row_sums(batch.log_ratio)
    w = Exact(*(ratio.on_tokens(part, batch.counts) for part in sums))
    return weighed_log_prob(batch, gamma_weight(w, taper))


def gamma_weight(log_ratio: Exact, taper: Taper) -> Floats:
    """The weight exp(lambda) r**k exp(-lambda r) = exp(k log r - lambda (r - 1)), 1 at r = 1; 0 where r overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponent = taper.k * log_ratio.value - taper.rate * exact.expm1(log_ratio)
        return np.exp(exponent) * (1.0 + taper.k * log_ratio.rest)


def sapo(batch: Batch, tau: Floats) -> Term:
    """The loss l = -(4 / tau) sigma(x) A with x = tau (r - 1); dl = -4 sigma(x) sigma(-x) r A. SAPO (arXiv 2511.20347).

    sigma(-x) falls faster than r grows: where it is 0 the slope is 0, however large r is.
    """
    return gate(batch.log_ratio, tau, batch.weighted_advantages)


def gate(log_ratio: Exact, tau: Floats, advantages: Floats) -> Term:
    """The gate of any ratio, and its slope by that ratio's logarithm."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = tau * exact.expm1(log_ratio)
        closing = 4.0 * sigmoid(x) * sigmoid(-x) * exact.exp(log_ratio)
    slope = -times(np.where(sigmoid(-x) == 0.0, 0.0, closing), advantages)
    return Term(-times(4.0 / tau * sigmoid(x), advantages), slope)


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
        ratio_level: whose ratio it takes, one of `loss_axes.RATIOS`, or "none".
        bound: what bounds the ratio, one of `loss_terms.BOUNDS`.
        aggregation: what a token weighs, one of `aggregation.row_weights`.
        kl: whether a KL may stand in the loss.
    """

    term: Callable[..., Term]
    ratio_level: str = "token"
    bound: str = "clip"
    aggregation: str = "row-mean"
    kl: bool = True

    @property
    def by_row(self) -> bool:
        """Whether a row has one ratio, and so one advantage and one off-policy weight."""
        return self.ratio_level in {"seq_mean", "seq_sum"}


DEFINITIONS: Mapping[str, Definition] = MappingProxyType(
    {
        "grpo": Definition(token_clipped),
        "dapo": Definition(token_clipped, aggregation="token-mean"),
        "bnpo-trl": Definition(token_clipped, aggregation="micro-batch"),
        "dr_grpo": Definition(token_clipped, aggregation="constant"),
        "gspo": Definition(mean_clipped, "seq_mean"),
        "gspo-token": Definition(mean_clipped, "seq_mean_token"),
        "rloo": Definition(rloo, "seq_sum", "none", kl=False),
        "cispo": Definition(cispo, bound="cap", aggregation="token-mean"),
        "sapo": Definition(sapo, bound="gate"),
        "gmpo": Definition(gmpo, "seq_mean", "log-clip"),
        "luspo": Definition(mean_clipped, "seq_mean", aggregation="row-sum"),
        "reinforce": Definition(reinforce, "none", "none"),
        "reinforce++": Definition(token_clipped, aggregation="token-mean", kl=False),
        "ppo": Definition(dual_clipped, aggregation="token-mean"),
        "vespo": Definition(vespo, "seq_sum", "taper", "token-mean"),
    }
)
