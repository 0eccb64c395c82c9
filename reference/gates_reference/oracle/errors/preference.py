"""What an error of a preference loss and of its derivatives is measured in.

The argument of each loss, such as the margin, is rounded itself: by `reach`, the sum of its absolute terms, in units of
2u. So the scale of a loss is |terms| + |slope| reach, and that of a slope |slope| and what the reach changes of it.

Source: docs/definitions.md, "Accuracy" and "Preference losses".
"""

from typing import NamedTuple

import numpy as np

from gates_reference.oracle.definitions.logistic import minus_log_sigmoid, sigmoid
from gates_reference.oracle.definitions.preference import Side, log_odds, log_odds_slope, nll_weight
from gates_reference.oracle.inputs import Bools, Floats


class Scales(NamedTuple):
    """Per pair (P,): what an error of the loss and of its derivatives by either side is measured in."""

    loss: Floats
    chosen: Floats
    rejected: Floats


def of_margin(z: Floats, reach: Floats, beta: float, smoothing: float = 0.0) -> Scales:
    """The scales of -(1 - s) log sigma(z) - s log sigma(-z)."""
    loss = (1.0 - smoothing) * minus_log_sigmoid(z) + smoothing * minus_log_sigmoid(-z)
    closed, opened = sigmoid(-z), sigmoid(z)
    size = (1.0 - smoothing) * closed + smoothing * opened
    slope = beta * (size + opened * closed * reach)
    return Scales(loss + size * reach, slope, slope)


def dpo(c: Side, r: Side, beta: float, label_smoothing: float) -> Scales:
    """The margin's terms are both log-ratios."""
    return of_margin(beta * (c.log_ratio - r.log_ratio), beta * _both(c, r), beta, label_smoothing)


def hinge(c: Side, r: Side, beta: float) -> Scales:
    """The scales are 0, "exact", where the hinge is flat."""
    active = beta * (c.log_ratio - r.log_ratio) < 1.0
    slope = np.where(active, beta, 0.0)
    return Scales(np.where(active, 1.0 + beta * _both(c, r), 0.0), slope, slope)


def ipo(c: Side, r: Side, beta: float) -> Scales:
    """The square of off: off**2 + |2 off| reach, and 2 reach for its slope."""
    target = 1.0 / (2.0 * beta)
    off, reach = c.log_ratio - r.log_ratio - target, _both(c, r) + target
    return Scales(off**2 + np.abs(2.0 * off) * reach, 2.0 * reach, 2.0 * reach)


def dpop(c: Side, r: Side, beta: float, penalty: float) -> Scales:
    """The shortfall is a term of the margin."""
    held = penalty * np.maximum(c.shortfall, 0.0)
    found = of_margin(beta * (c.log_ratio - r.log_ratio - held), beta * (_both(c, r) + held), beta)
    return found._replace(chosen=found.chosen * np.where(c.shortfall > 0, 1.0 + penalty, 1.0))


def simpo(c: Side, r: Side, beta: float, margin: float) -> Scales:
    """The margin's terms are both means and gamma."""
    reach = beta * (np.abs(c.mean) + np.abs(r.mean)) + abs(margin)
    return of_margin(beta * (c.mean - r.mean) - margin, reach, beta)


def orpo(c: Side, r: Side, beta: float) -> Scales:
    """A rounding of a mean a moves its odds by |a| / (1 - exp a), and the slope of the odds by |a| exp(a) / (1 - exp a)**2."""
    found = odds_ratio(c, r, beta)
    return found._replace(loss=np.abs(c.mean) + found.loss, chosen=1.0 + found.chosen)


def odds_ratio(c: Side, r: Side, beta: float) -> Scales:
    """The scales of ORPO without its likelihood."""
    (pull_c, reach_c, more_c), (pull_r, reach_r, more_r) = _odds(c.mean), _odds(r.mean)
    found = of_margin(log_odds(c.mean) - log_odds(r.mean), reach_c + reach_r, beta)
    return Scales(beta * found.loss, found.chosen * pull_c * more_c, found.rejected * pull_r * more_r)


def likelihood(policy: Floats, counts: Bools) -> tuple[float, float]:
    """The scales of a mean over tokens and of its derivative by each."""
    tokens = max(float(np.sum(counts)), 1.0)
    return float(np.sum(np.abs(policy[counts]))) / tokens, 1.0 / tokens


def cpo(c: Side, r: Side, beta: float, nll: float) -> Scales:
    """The NLL adds its absolute value to the loss, and its weight to the chosen side's slope."""
    reach = beta * (np.abs(c.logprob) + np.abs(r.logprob))
    found, each = of_margin(beta * (c.logprob - r.logprob), reach, beta), nll_weight(c, nll)
    return found._replace(loss=found.loss + each * np.abs(c.logprob), chosen=found.chosen + each)


def kto(
    log_ratio: Floats, anchor: float, mismatched: Floats, beta: float, sign: Floats, weight: Floats
) -> tuple[Floats, Floats]:
    """The scales of each row's loss and slope: the reach is the row's log-ratio and the mean |mismatched| one."""
    z = sign * beta * (log_ratio - anchor)
    reach = beta * (np.abs(log_ratio) + float(np.abs(mismatched).mean()))
    curve = sigmoid(-z) * sigmoid(z)
    return weight * sigmoid(-z) + weight * curve * reach, weight * beta * curve * (1.0 + reach)


def _both(c: Side, r: Side) -> Floats:
    return np.asarray(np.abs(c.log_ratio) + np.abs(r.log_ratio))


def _odds(a: Floats) -> tuple[Floats, Floats, Floats]:
    """The slope of the log-odds, what a rounding of a does to them, and by how much more to their slope."""
    pull = log_odds_slope(a)
    return pull, np.abs(a) * pull + np.abs(log_odds(a)) + np.abs(a), 1.0 + np.abs(a) * np.exp(a) * pull
