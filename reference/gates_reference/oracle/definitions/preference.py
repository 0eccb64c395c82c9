"""The losses that learn from a chosen and a rejected completion, and KTO's loss of labelled rows.

`c` and `r` are the chosen and the rejected completion of each pair. Every function gives the loss of each pair and its
derivatives by what the pair's loss sees of both: sums over tokens, or means for IPO by means, SimPO and ORPO.
"""

from typing import NamedTuple

import numpy as np

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.definitions.logistic import minus_log_sigmoid, sigmoid
from gates_reference.oracle.inputs import Bools, Floats, Ints


class Side(NamedTuple):
    """One completion of every pair, (P,) each.

    Attributes:
        log_ratio: policy - reference, summed over tokens or their mean.
        logprob: the summed log-prob of the policy.
        mean: its mean over tokens; 0 for a completion without tokens.
        shortfall: the summed reference - policy.
        tokens: how many there are.
    """

    log_ratio: Floats
    logprob: Floats
    mean: Floats
    shortfall: Floats
    tokens: Ints


class Pairs(NamedTuple):
    """Per pair (P,): the loss, and its derivatives by the chosen and by the rejected completion's sum or mean."""

    loss: Floats
    chosen: Floats
    rejected: Floats


def side(policy: Floats, reference: Floats, counts: Bools, *, averaged: bool) -> Side:
    """What the losses see of completions, (P, T) each, 0 where no token stands."""
    moved = exact.difference(policy, reference)
    tokens = np.asarray(np.sum(counts, axis=1), np.int64)
    sums, own = exact.row_sums(moved), Exact(policy, np.zeros(policy.shape))
    seen = exact.row_means(moved, tokens) if averaged else sums
    return Side(
        seen.value + seen.rest, exact.row_sums(own).value, exact.row_means(own, tokens).value, -sums.value, tokens
    )


def of_margin(z: Floats, beta: float, smoothing: float = 0.0) -> Pairs:
    """The loss l = -(1 - s) log sigma(z) - s log sigma(-z) of a margin z.

    The margin moves by beta with the chosen side and by -beta with the rejected one.
    """
    loss = (1.0 - smoothing) * minus_log_sigmoid(z) + smoothing * minus_log_sigmoid(-z)
    slope = -(1.0 - smoothing) * sigmoid(-z) + smoothing * sigmoid(z)
    return Pairs(loss, beta * slope, -beta * slope)


def dpo(c: Side, r: Side, beta: float, label_smoothing: float) -> Pairs:
    """The margin z = beta (lr_c - lr_r). DPO (arXiv 2305.18290), eq. 7; label smoothing: cDPO, Mitchell (2023)."""
    return of_margin(beta * (c.log_ratio - r.log_ratio), beta, label_smoothing)


def hinge(c: Side, r: Side, beta: float) -> Pairs:
    """The loss l = max(0, 1 - beta (lr_c - lr_r)). SLiC-HF (arXiv 2305.10425)."""
    z = beta * (c.log_ratio - r.log_ratio)
    slope = np.where(z < 1.0, beta, 0.0)
    return Pairs(np.maximum(0.0, 1.0 - z), -slope, slope)


def ipo(c: Side, r: Side, beta: float) -> Pairs:
    """The loss l = (lr_c - lr_r - 1 / (2 beta))**2. IPO (arXiv 2310.12036), eq. 17."""
    off = c.log_ratio - r.log_ratio - 1.0 / (2.0 * beta)
    return Pairs(off**2, 2.0 * off, -(2.0 * off))


def dpop(c: Side, r: Side, beta: float, penalty: float) -> Pairs:
    """The loss l = -log sigma(beta (lr_c - lr_r - lambda max(0, reference_c - policy_c))). DPOP (arXiv 2402.13228), eq. 3."""
    behind = c.shortfall > 0
    z = beta * (c.log_ratio - r.log_ratio - penalty * np.maximum(c.shortfall, 0.0))
    found = of_margin(z, beta)
    return found._replace(chosen=found.chosen * np.where(behind, 1.0 + penalty, 1.0))


def simpo(c: Side, r: Side, beta: float, margin: float) -> Pairs:
    """The loss l = -log sigma(beta (mean_c - mean_r) - gamma). SimPO (arXiv 2405.14734), eq. 6."""
    return of_margin(beta * (c.mean - r.mean) - margin, beta)


def orpo(c: Side, r: Side, beta: float) -> Pairs:
    """The loss l = -mean_c - lambda log sigma(odds_c - odds_r). ORPO (arXiv 2403.07691), eqs. 4 to 7.

    The negative log-likelihood is the chosen completion's own token mean; lambda is `beta`.
    """
    found = odds_ratio(c, r, beta)
    return found._replace(loss=found.loss - c.mean, chosen=found.chosen - 1.0)


def odds_ratio(c: Side, r: Side, beta: float) -> Pairs:
    """The loss l = -lambda log sigma(odds_c - odds_r): ORPO's without a likelihood, eq. 7."""
    found = of_margin(log_odds(c.mean) - log_odds(r.mean), beta)
    return Pairs(beta * found.loss, found.chosen * log_odds_slope(c.mean), found.rejected * log_odds_slope(r.mean))


def likelihood(policy: Floats, counts: Bools) -> tuple[float, float]:
    """The negative log-likelihood of all counted tokens together, NLL = -(sum lp) / N, and its derivative by each, -1 / N."""
    tokens = max(float(np.sum(counts)), 1.0)
    return -exact.total(policy[counts]) / tokens, -1.0 / tokens


def log_odds(a: Floats) -> Floats:
    """The log-odds log(p / (1 - p)) = a - log(1 - exp a) of p = exp a."""
    return np.asarray(a - np.log(-np.expm1(a)))


def log_odds_slope(a: Floats) -> Floats:
    """The derivative of the log-odds by a, 1 / (1 - exp a)."""
    return np.asarray(-1.0 / np.expm1(a))


def cpo(c: Side, r: Side, beta: float, nll: float) -> Pairs:
    """The loss l = -log sigma(beta (policy_c - policy_r)) + alpha NLL. CPO (arXiv 2401.08417), eqs. 4 and 5.

    NLL is the mean over all chosen tokens of the batch; the mean over pairs, which follows, divides by P again.
    """
    found = of_margin(beta * (c.logprob - r.logprob), beta)
    each = nll_weight(c, nll)
    return found._replace(loss=found.loss - each * c.logprob, chosen=found.chosen - each)


def nll_weight(c: Side, nll: float) -> float:
    """The weight of a chosen token in P times the loss, alpha P / (all chosen tokens)."""
    return nll * len(c.tokens) / max(float(np.sum(c.tokens)), 1.0)


def kto_anchor(mismatched: Floats) -> float:
    """The anchor z0 = max(0, mean of the mismatched log-ratios), a constant. KTO (arXiv 2402.01306), section 4.1."""
    return max(0.0, exact.total(mismatched) / mismatched.size)


def kto(log_ratio: Floats, anchor: float, beta: float, sign: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """The loss l = lambda (1 - sigma(z)), z = sign beta (lr - z0), sign 1 if desirable, else -1. KTO (arXiv 2402.01306), section 4.

    With its derivative by the row's log-ratio: -sign lambda beta sigma(z) sigma(-z).
    """
    z = sign * beta * (log_ratio - anchor)
    return weight * sigmoid(-z), -sign * weight * beta * (sigmoid(-z) * sigmoid(z))
