"""What an error of a policy loss's gradient is measured in, and where either side of a clip is accepted.

Source: docs/definitions.md, "Accuracy" and "Branch points".
"""

from typing import NamedTuple

import numpy as np

from gates_reference.oracle.definitions import exact, kl, loss_kl, ratio
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.definitions.logistic import sigmoid
from gates_reference.oracle.definitions.loss_axes import Ratio
from gates_reference.oracle.definitions.losses import Batch, Bounds, Taper, Term, times
from gates_reference.oracle.errors.branches import near_bound
from gates_reference.oracle.inputs import Bools, Floats


class Tolerance(NamedTuple):
    """Per slot and per unit of the row's weight, (B, T).

    Attributes:
        scale: what an error of the slope is measured in, on whichever side of a near bound.
        near: within 16 ulp of a bound at which the slope jumps.
        other: the slope on the other side of that bound; the slope itself elsewhere.
        slack: by how much the row's sum may differ for it.
    """

    scale: Floats
    near: Bools
    other: Floats
    slack: Floats


def smooth(term: Term, scale: Floats | None = None) -> Tolerance:
    """The tolerance of a slope that jumps nowhere; it is measured in itself unless a scale is given."""
    nothing = np.zeros(term.slope.shape)
    return Tolerance(np.abs(term.slope) if scale is None else scale, nothing.astype(np.bool_), term.slope, nothing)


def unbounded(_batch: Batch, _ratio: Ratio, _constants: object, term: Term, _dtype: np.dtype) -> Tolerance:
    """The tolerance of a term whose slope jumps nowhere, also where a constant ratio is held at a cap."""
    return smooth(term)


def clipped(batch: Batch, ratio: Ratio, bounds: Bounds, term: Term, dtype: np.dtype) -> Tolerance:
    """A bound acts on the sign of A that it clips: `high` on A > 0, `low` and `delta` on A < 0."""
    r, a, w = ratio.r, batch.advantages, batch.weighted_advantages
    near, distance = np.zeros(r.shape, np.bool_), np.zeros(r.shape)
    good, bad = a > 0, a < 0
    for bound, applies in ((bounds.low, bad), (bounds.high, good), (bounds.delta, bad)):
        here = applies & near_bound(r, (bound,), dtype) & batch.counts
        near |= here
        distance[here] = np.abs(r[here] - bound)
    return _two_sided(term, -times(r, w) * ratio.moves, near, np.abs(w) * distance)


def clipped_in_nats(batch: Batch, _: Ratio, bounds: Bounds, term: Term, dtype: np.dtype) -> Tolerance:
    """As `clipped`, of the log ratio, whose error stands in the row's value as many times as that is large."""
    d, good = batch.log_ratio.value, batch.advantages > 0
    close = np.where(good, near_bound(d, (bounds.high,), dtype), near_bound(d, (bounds.low,), dtype))
    near = close & batch.counts & (batch.advantages != 0)
    distance = d - np.where(good, bounds.high, bounds.low)
    return _two_sided(term, term.value, near, np.where(near, np.abs(term.value * distance), 0.0))


def gated(batch: Batch, ratio: Ratio, tau: Floats, term: Term, dtype: np.dtype) -> Tolerance:
    """An error of r stands in the slope 1 + tau r times.

    Where sigma' is below the least normal number of the dtype it has fewer bits: its error is one of that number, which
    stands in the slope r times.
    """
    r = ratio.r
    with np.errstate(over="ignore", invalid="ignore"):
        x = tau * exact.expm1(ratio.log)
        closing = 4.0 * sigmoid(x) * sigmoid(-x) * r * (1.0 + tau * r)
        fewer_bits = np.where(np.isfinite(r), 4.0 * np.finfo(dtype).tiny * r, 0.0)
        condition = np.where(sigmoid(-x) == 0.0, 0.0, closing) + fewer_bits
    return smooth(term, np.abs(times(condition, batch.weighted_advantages)) * ratio.moves)


def tapered(batch: Batch, ratio: Ratio, taper: Taper, term: Term, _: np.dtype) -> Tolerance:  # noqa: ARG001  as the others
    """An error of log r stands in the weight k + lambda r times, and the exponent rounds as its largest terms do."""
    with np.errstate(over="ignore", invalid="ignore"):
        terms = 1.0 + taper.k * (1.0 + np.abs(ratio.log.value)) + taper.rate * (1.0 + ratio.r)
        return smooth(term, np.where(term.slope == 0.0, 0.0, np.abs(term.slope) * terms))


def kl_scale(batch: Batch, d: Exact, estimator: str, kl_ratio: str, clamp: float | None = None) -> Floats:
    """The absolute terms of the KL's slope, (B, T)."""
    if clamp is not None:
        k, slope = loss_kl.clamped(d, estimator, clamp)
        return loss_kl.weighed(batch, Term(np.abs(k), np.abs(slope)), kl_ratio).slope
    slope = kl.slope(d, estimator)
    if kl_ratio == "none":
        return np.abs(slope)
    k = np.abs(kl.estimate(d, estimator))
    if kl_ratio == "token":
        terms = np.abs(d.value) if estimator == "k3" else k + np.abs(slope)
        return times(ratio.token_ratio(batch.log_ratio), terms)
    rho = ratio.on_tokens(ratio.sequence_mean(batch.log_ratio, batch.lengths), batch.counts)
    return times(rho, np.abs(slope) + kl.row_mean(k, batch.counts))


def _two_sided(term: Term, unclipped: Floats, near: Bools, slack: Floats) -> Tolerance:
    """On the other side of a near bound the slope is 0 if it is alive here, and the unclipped one if it is 0 here."""
    other = np.where(near, np.where(term.slope == 0.0, unclipped, 0.0), term.slope)
    return Tolerance(np.where(near, np.abs(unclipped), np.abs(term.slope)), near, other, slack)
