"""What a policy loss holds for a token besides the KL: clipped, truncated, softly gated or plainly weighted ratios."""

import math
from typing import NamedTuple

import numpy as np

from reference.oracle.exact import exponential, row_means, row_sums
from reference.oracle.inputs import Bools, Floats, Ints, choice, number, positive
from reference.oracle.ratio import near_bound

MEAN_RATIO = ("gspo", "gspo-token", "luspo")  # exp of the row's mean difference
UNCLIPPED = ("rloo", "cispo", "sapo")  # without a bound at which the gradient jumps
CISPO_BOUNDS = ("relative", "absolute")


class Settings(NamedTuple):
    """The constants of the surrogates, as `policy_loss` takes them."""

    algorithm: str
    epsilon_low: float | None
    epsilon_high: float | None
    delta: float | None
    cispo_bound: str | None
    temperature_positive: float | None
    temperature_negative: float | None


class Batch(NamedTuple):
    """A step's tokens as (B, T), 0 where no token stands.

    Attributes:
        counts: the slots that hold a token.
        lengths: (B,), the tokens of each row.
        policy: log-probs in nats.
        difference: policy - old, rounded.
        lost: what that rounding lost.
        advantages: A.
        weights: w.
        dtype: whose ulp the rule for branch points counts.
    """

    counts: Bools
    lengths: Ints
    policy: Floats
    difference: Floats
    lost: Floats
    advantages: Floats
    weights: Floats
    dtype: np.dtype


class Surrogate(NamedTuple):
    """Per slot and per unit of the row's weight, (B, T).

    Attributes:
        value: l w, minimised.
        slope: the derivative of the row's sum of l w by this slot's log-prob.
        scale: what an error of `slope` is measured in, on whichever side of a near bound.
        near: within 16 ulp of a bound at which the slope jumps.
        other: the slope on the other side of that bound; `slope` elsewhere.
        slack: by how much the row's sum may differ for it.
    """

    value: Floats
    slope: Floats
    scale: Floats
    near: Bools
    other: Floats
    slack: Floats


def surrogate(batch: Batch, settings: Settings) -> Surrogate:
    """The surrogate of one algorithm.

    Args:
        batch: the step's tokens.
        settings: the algorithm and its constants.

    Returns:
        `Surrogate`.

    Raises:
        ValueError: a constant is missing, does not fit, or is one that the algorithm does not have.

    Source: as `policy_loss`.
    """
    algorithm = settings.algorithm
    _without_strangers(settings)
    if algorithm == "rloo":
        return _product(batch)
    if algorithm == "cispo":
        return _truncated(batch, settings)
    if algorithm == "sapo":
        return _soft(batch, settings)
    if algorithm == "gmpo":
        return _geometric(batch, settings)
    if algorithm in MEAN_RATIO:
        ratio = exponential(*row_means(batch.difference, batch.lost, batch.lengths))[:, None]
        return _clipped(batch, settings, ratio * np.ones(batch.counts.shape))
    return _clipped(batch, settings, exponential(batch.difference, batch.lost))


def _without_strangers(settings: Settings) -> None:
    """A constant that an algorithm does not have is refused, not ignored."""
    strangers = {
        "rloo": ("epsilon_low", "epsilon_high"),
        "sapo": ("epsilon_low", "epsilon_high"),
        "cispo": ("epsilon_low",),
    }
    names = list(strangers.get(settings.algorithm, ()))
    names += ["delta"] if settings.algorithm in (*UNCLIPPED, "gmpo") else []
    if given := {name: value for name in names if (value := getattr(settings, name)) is not None}:
        raise ValueError(
            f"{', '.join(f'`{name}` is {value}' for name, value in given.items())}, "
            f"must be None for {settings.algorithm!r}, which has no such bound"
        )


def _clipped(batch: Batch, settings: Settings, ratio: Floats) -> Surrogate:
    """The loss l = -min(min(r, delta) A, clip(r) A), read off by the sign of A.

    A > 0: the smaller of r and clip(r) is min(r, high). A < 0: the larger of min(r, delta) and clip(r) is
    max(min(r, delta), low). The gradient passes unless r is strictly outside the bound that applies. The mean ratio of
    a row stands n times in its row's sum and moves by r / n with each log-prob: by r in all, as a token's own does.
    GSPO-token's ratio has the row's value and the slope of a token's own.
    """
    low = 1.0 - number("epsilon_low", settings.epsilon_low, least=0)
    high = 1.0 + number("epsilon_high", settings.epsilon_high, least=0)
    cap = math.inf if settings.delta is None else float(settings.delta)
    if settings.delta is not None and not high < cap < math.inf:
        raise ValueError(f"`delta` is {settings.delta}, must be finite and above 1 + epsilon_high = {high}, or None")
    constant = batch.advantages * batch.weights
    gains, losses = batch.advantages > 0, batch.advantages < 0
    taken = np.where(gains, np.minimum(ratio, high), np.maximum(np.minimum(ratio, cap), low))
    alive = ~((gains & (ratio > high)) | (losses & ((ratio < low) | (ratio > cap))))
    near = np.zeros(ratio.shape, np.bool_)
    distance = np.zeros(ratio.shape)
    for bound, applies in ((low, losses), (high, gains), (cap, losses)):
        here = applies & near_bound(ratio, (bound,), batch.dtype) & batch.counts
        near |= here
        distance[here] = np.abs(ratio[here] - bound)
    slope = -times(ratio, constant)
    return Surrogate(
        -times(taken, constant),
        np.where(alive, slope, 0.0),
        np.where(alive | near, np.abs(slope), 0.0),
        near,
        np.where(alive ^ near, slope, 0.0),
        np.abs(constant) * distance,
    )


def _product(batch: Batch) -> Surrogate:
    """The loss l = -r A with the row's product r, which stands n times in its row's sum and moves by r with each log-prob."""
    ratio = exponential(*row_sums(batch.difference, batch.lost))[:, None] * np.ones(batch.counts.shape)
    value = -times(ratio, batch.advantages * batch.weights)
    return _smooth(value, value * batch.lengths[:, None])


def _truncated(batch: Batch, settings: Settings) -> Surrogate:
    """The loss l = -stop(min(r, c)) A policy: the truncated ratio is a constant, so every token keeps its gradient."""
    choice("cispo_bound", settings.cispo_bound, CISPO_BOUNDS)
    width = positive("epsilon_high", settings.epsilon_high)
    cap = 1.0 + width if settings.cispo_bound == "relative" else width
    ratio = np.minimum(exponential(batch.difference, batch.lost), cap)
    slope = -times(ratio, batch.advantages * batch.weights)
    return _smooth(slope * batch.policy, slope)


def _soft(batch: Batch, settings: Settings) -> Surrogate:
    """The loss l = -(4 / tau) sigma(tau (r - 1)) A with a temperature of its own for A > 0; the slope is -4 sigma' r A.

    Near r = 1 the gate is -(2 / tau) A and its slope -A. An error of r stands in the slope 1 + tau r times. Where sigma'
    is below the least normal number of the dtype it has fewer bits: its error is one of that number, and stands there r times.
    """
    up = positive("sapo_temperature_positive", settings.temperature_positive)
    down = positive("sapo_temperature_negative", settings.temperature_negative)
    tau = np.where(batch.advantages > 0, up, down)
    constant = batch.advantages * batch.weights
    ratio = exponential(batch.difference, batch.lost)
    with np.errstate(over="ignore", invalid="ignore"):
        x = tau * (np.expm1(batch.difference) + np.where(np.isfinite(ratio), ratio, 0.0) * batch.lost)
        small = np.exp(-np.abs(x))  # exp(x) is infinite from 710 on, and exp(-x) above 0 until 745
        open_, closed = np.where(x >= 0, 1.0, small) / (1.0 + small), np.where(x >= 0, small, 1.0) / (1.0 + small)
        gate = np.where(closed == 0.0, 0.0, 4.0 * open_ * closed * ratio)  # sigma' falls faster than r grows
        fewer_bits = np.where(np.isfinite(ratio), 4.0 * np.finfo(batch.dtype).tiny * ratio, 0.0)
        condition = np.where(closed == 0.0, 0.0, gate * (1.0 + tau * ratio)) + fewer_bits
    slope = -times(gate, constant)
    found = _smooth(-times(4.0 / tau * open_, constant), slope)
    return found._replace(scale=np.abs(times(condition, constant)))


def _geometric(batch: Batch, settings: Settings) -> Surrogate:
    """The loss l = -r A, r = exp of the row's mean of q: q = min(D, epsilon_high) if A > 0, else max(D, -epsilon_low).

    The bounds are in log space. A clipped token keeps the row's ratio and loses its own gradient.
    """
    low = -number("epsilon_low", settings.epsilon_low, least=0)
    high = number("epsilon_high", settings.epsilon_high, least=0)
    gains = batch.advantages > 0
    outside = np.where(gains, batch.difference > high, batch.difference < low) & batch.counts
    held = np.where(outside, np.where(gains, high, low), batch.difference)
    ratio = exponential(*row_means(held, np.where(outside, 0.0, batch.lost), batch.lengths))[:, None]
    value = -times(ratio * np.ones(batch.counts.shape), batch.advantages * batch.weights)
    bound = np.where(gains, high, low)
    close = np.where(
        gains, near_bound(batch.difference, (high,), batch.dtype), near_bound(batch.difference, (low,), batch.dtype)
    )
    near = close & batch.counts & (batch.advantages != 0)
    return Surrogate(
        value,
        np.where(outside, 0.0, value),
        np.where(outside & ~near, 0.0, np.abs(value)),
        near,
        np.where(outside ^ near, 0.0, value),
        np.where(near, np.abs(value * (batch.difference - bound)), 0.0),
    )


def _smooth(value: Floats, slope: Floats) -> Surrogate:
    """A surrogate without a bound at which the slope jumps."""
    nothing = np.zeros(value.shape)
    return Surrogate(value, slope, np.abs(slope), nothing.astype(np.bool_), slope, nothing)


def times(ratio: Floats, constant: Floats) -> Floats:
    """The product, 0 wherever the constant is: an overflowing ratio without advantage is no NaN.

    Args:
        ratio: any shape, float64.
        constant: the same shape.

    Returns:
        float64 of the same shape.

    Source: semantics.md, "Notation": never NaN.
    """
    return np.multiply(ratio, constant, out=np.zeros(constant.shape), where=constant != 0)
