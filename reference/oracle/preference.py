"""The losses that learn from a chosen and a rejected completion, with their analytic gradients and the scale of their errors."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reference.oracle.exact import finite_or_zero, row_means, row_sums, total, two_difference
from reference.oracle.inputs import Bools, Floats, choice, finite, floats, mask_of, number, positive

PAIR_LOSSES = ("dpo", "hinge", "ipo", "dpop", "orpo", "simpo", "cpo")
WITH_REFERENCE = ("dpo", "hinge", "ipo", "dpop")
LENGTHS = ("sum", "mean")


class PreferenceLoss(NamedTuple):
    """A loss, its gradient with respect to the policy's log-probs, and what an error of either is measured in.

    Attributes:
        loss: minimised; the mean over pairs (KTO: over rows), dimensionless.
        gradient: float64 of the shape of the log-probs, exactly 0 in masked slots.
        loss_scale: mean of |terms| + |slope| |argument|: the argument, such as the margin, is rounded once itself.
        gradient_scale: of the shape of the gradient, |slope| and what a rounding of the argument changes of it.
    """

    loss: float
    gradient: Floats
    loss_scale: float
    gradient_scale: Floats


class Side(NamedTuple):
    """One completion of every pair.

    Attributes:
        value: (P,) what the loss sees of it: the sum or the mean of log-prob differences, or of log-probs.
        size: (P,) the same of absolute values.
        logprob: (P,) the summed log-prob of the policy, and
        mean: (P,) its mean over tokens; 0 for a completion without tokens.
        shortfall: (P,) summed reference - policy.
        tokens: (P,).
    """

    value: Floats
    size: Floats
    logprob: Floats
    mean: Floats
    shortfall: Floats
    tokens: Floats


class Slopes(NamedTuple):
    """Per pair (P,): the loss, its derivatives by the summed log-probs of both completions, and their scales."""

    loss: Floats
    loss_scale: Floats
    chosen: Floats
    rejected: Floats
    chosen_scale: Floats
    rejected_scale: Floats


def preference_loss(
    policy: npt.ArrayLike,
    *,
    reference: npt.ArrayLike | None,
    mask: npt.ArrayLike,
    loss: str,
    beta: float,
    label_smoothing: float | None = None,
    lengths: str | None = None,
    penalty: float | None = None,
    margin: float | None = None,
    nll: float | None = None,
) -> PreferenceLoss:
    """The mean over pairs of a function of both completions' log-probs, with x the difference of the two log-ratios.

    A log-ratio is sum_t policy - reference over completion tokens; Delta = beta x.

    - "dpo": -(1 - s) log sigma(Delta) - s log sigma(-Delta), s = label_smoothing (conservative DPO);
    - "hinge": max(0, 1 - Delta) (SLiC);
    - "ipo": (x - 1 / (2 beta))^2, log-ratios summed or averaged over tokens as `lengths` says;
    - "dpop": -log sigma(Delta - beta lambda max(0, reference_c - policy_c)), lambda = penalty;
    - "simpo": -log sigma(beta (mean_c - mean_r) - gamma), gamma = margin, means of the policy's log-probs;
    - "orpo": -mean_c - lambda log sigma(odds_c - odds_r), odds = a - log(1 - exp a) of the mean a, lambda = beta: the
      negative log-likelihood is the chosen completion's own token mean;
    - "cpo": -log sigma(beta (policy_c - policy_r)) + alpha NLL, alpha = nll, NLL the mean over all chosen tokens of the batch.

    Args:
        policy: (2 P, T) log-probs in nats, the variable of the gradient; row 2k is chosen, row 2k + 1 rejected.
        reference: of the same shape, a constant; None is reference-free (zeros), and for the last three what must stand.
        mask: (2 P, T), 1 on completion tokens; prompt tokens and padding are 0 and are not read.
        loss: one of the above.
        beta: above 0.
        label_smoothing: "dpo" only, in [0, 0.5); None elsewhere.
        lengths: "ipo" only: "sum" or "mean".
        penalty: "dpop" only, at least 0.
        margin: "simpo" only, gamma.
        nll: "cpo" only, alpha, at least 0.

    Returns:
        `PreferenceLoss`.

    Raises:
        ValueError: shapes that do not fit, an unknown loss, a constant that is missing, or that the loss does not have.

    Source: DPO (arXiv 2305.18290), eq. 7; cDPO: Mitchell (2023); SLiC-HF (arXiv 2305.10425); IPO (arXiv 2310.12036),
        eq. 17; DPOP (arXiv 2402.13228), eq. 3; SimPO (arXiv 2405.14734), eq. 6; ORPO (arXiv 2403.07691), eqs. 4 to 7; CPO
        (arXiv 2401.08417), eqs. 4 and 5.
    """
    choice("loss", loss, PAIR_LOSSES)
    positive("beta", beta)
    constants = {
        "label_smoothing": (label_smoothing, "dpo"),
        "lengths": (lengths, "ipo"),
        "penalty": (penalty, "dpop"),
        "margin": (margin, "simpo"),
        "nll": (nll, "cpo"),
    }
    for name, (value, owner) in constants.items():
        if value is not None and loss != owner:
            raise ValueError(f"`{name}` is {value}, must be None for {loss!r}")
    if reference is not None and loss not in WITH_REFERENCE:
        raise ValueError(f"`reference` is given, must be None for {loss!r}, which has none")
    values, counts = _masked(policy, mask)
    if len(values) % 2 or not len(values):
        raise ValueError(f"`policy` has {len(values)} rows, must be pairs of a chosen and a rejected one")
    base = np.zeros(values.shape) if reference is None else _masked(reference, mask, values.shape)[0]
    if loss == "ipo":
        choice("lengths", lengths, LENGTHS)
    averaged = lengths == "mean" or loss in ("simpo", "orpo")
    chosen, rejected = (_side(values[k::2], base[k::2], counts[k::2], averaged=averaged) for k in (0, 1))
    scale = 1.0 / (len(values) // 2)
    slopes = _FUNCTIONS[loss](
        chosen, rejected, beta, {"s": label_smoothing, "penalty": penalty, "margin": margin, "nll": nll}
    )
    gradient, sizes = np.zeros(values.shape), np.zeros(values.shape)
    for k, (slope, size, side) in enumerate(
        ((slopes.chosen, slopes.chosen_scale, chosen), (slopes.rejected, slopes.rejected_scale, rejected))
    ):
        share = scale / np.maximum(side.tokens, 1.0) if averaged else np.full(side.tokens.shape, scale)
        gradient[k::2] = np.where(counts[k::2], (slope * share)[:, None], 0.0)
        sizes[k::2] = np.where(counts[k::2], (size * share)[:, None], 0.0)
    return PreferenceLoss(total(slopes.loss) * scale, gradient, total(slopes.loss_scale) * scale, sizes)


def kto_loss(
    policy: npt.ArrayLike,
    *,
    reference: npt.ArrayLike,
    mask: npt.ArrayLike,
    desirable: npt.ArrayLike,
    mismatched: npt.ArrayLike,
    beta: float,
    desirable_weight: float,
    undesirable_weight: float,
) -> PreferenceLoss:
    """The mean over rows of lambda_D (1 - sigma(beta (lr - z0))) if desirable, else lambda_U (1 - sigma(beta (z0 - lr))).

    lr is the row's summed policy - reference, and z0 = max(0, mean of the mismatched log-ratios), a constant.

    Args:
        policy: (B, T) log-probs in nats, the variable of the gradient.
        reference: of the same shape.
        mask: of the same shape, 1 on completion tokens.
        desirable: (B,) of 0 and 1.
        mismatched: (M,) summed log-ratios of completions under prompts that are not theirs.
        beta: above 0.
        desirable_weight: lambda_D, at least 0.
        undesirable_weight: lambda_U, at least 0.

    Returns:
        `PreferenceLoss`.

    Raises:
        ValueError: shapes that do not fit, or no mismatched log-ratio.

    Source: KTO (arXiv 2402.01306), eqs. 8 and 9; semantics.md: z0 is estimated from mismatched pairs and detached.
    """
    positive("beta", beta)
    up = number("desirable_weight", desirable_weight, least=0)
    down = number("undesirable_weight", undesirable_weight, least=0)
    values, counts = _masked(policy, mask)
    base, _ = _masked(reference, mask, values.shape)
    good = mask_of(desirable, values.shape[:1])
    others = finite("mismatched", floats("mismatched", mismatched, ndim=1))
    if not others.size:
        raise ValueError("`mismatched` has no element, must have at least one to estimate z0")
    anchor = max(0.0, total(others) / others.size)
    side = _side(values, base, counts, averaged=False)
    sign, weight = np.where(good, 1.0, -1.0), np.where(good, up, down)
    z = sign * beta * (side.value - anchor)
    reach = beta * (np.abs(side.value) + float(np.abs(others).mean()))
    closed = sigmoid(-z)
    curve = closed * sigmoid(z)
    scale = 1.0 / len(values)
    gradient = np.where(counts, (-sign * weight * beta * curve * scale)[:, None], 0.0)
    sizes = np.where(counts, (weight * beta * curve * (1.0 + reach) * scale)[:, None], 0.0)
    terms = weight * closed
    return PreferenceLoss(total(terms) * scale, gradient, total(terms + weight * curve * reach) * scale, sizes)


def sigmoid(x: Floats) -> Floats:
    """The logistic function 1 / (1 + exp(-x)), with full relative precision on both sides.

    Args:
        x: any shape, float64.

    Returns:
        float64 of the same shape.

    Source: the definition, divided by exp where that is below 1.
    """
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def minus_log_sigmoid(x: Floats) -> Floats:
    """The value -log sigma(x) = max(0, -x) + log(1 + exp(-|x|)), which neither overflows nor cancels.

    Args:
        x: any shape, float64.

    Returns:
        float64 of the same shape, at least 0.

    Source: the definition.
    """
    return np.asarray(np.maximum(-x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def _masked(array: npt.ArrayLike, mask: npt.ArrayLike, shape: tuple[int, ...] | None = None) -> tuple[Floats, Bools]:
    values = floats("log-probs", array, ndim=2, shape=shape)
    counts = mask_of(mask, values.shape)
    return finite("log-probs", np.where(counts, values, 0.0)), counts


def _side(policy: Floats, reference: Floats, counts: Bools, *, averaged: bool) -> Side:
    difference, left = two_difference(policy, reference)
    lost = finite_or_zero(left)
    tokens = np.sum(counts, axis=1)
    nothing = np.zeros(policy.shape)
    sums, rest = row_means(difference, lost, tokens) if averaged else row_sums(difference, lost)
    size = np.sum(np.abs(difference), axis=1) / (np.maximum(tokens, 1) if averaged else 1)
    return Side(
        sums + rest,
        size,
        row_sums(policy, nothing)[0],
        row_means(policy, nothing, tokens)[0],
        -row_sums(difference, lost)[0],
        tokens.astype(np.float64),
    )


def _logistic(z: Floats, reach: Floats, s: float = 0.0) -> tuple[Floats, Floats, Floats, Floats]:
    """-(1 - s) log sigma(z) - s log sigma(-z), its slope in z, and the scales of both where z errs by its reach."""
    value = (1.0 - s) * minus_log_sigmoid(z) + s * minus_log_sigmoid(-z)
    open_, closed = sigmoid(z), sigmoid(-z)
    slope = -(1.0 - s) * closed + s * open_
    size = (1.0 - s) * closed + s * open_
    return value, value + size * reach, slope, size + open_ * closed * reach


def _dpo(c: Side, r: Side, beta: float, constants: dict[str, float | None]) -> Slopes:
    s = number("label_smoothing", constants["s"], least=0, most=0.5)
    if s == 0.5:
        raise ValueError("`label_smoothing` is 0.5, must be below: at 0.5 no side is preferred")
    return _of_margin(beta * (c.value - r.value), beta * (np.abs(c.value) + np.abs(r.value)), beta, s)


def _of_margin(z: Floats, reach: Floats, beta: float, s: float = 0.0) -> Slopes:
    value, scale, slope, size = _logistic(z, reach, s)
    return Slopes(value, scale, beta * slope, -beta * slope, beta * size, beta * size)


def _hinge(c: Side, r: Side, beta: float, _: dict[str, float | None]) -> Slopes:
    z = beta * (c.value - r.value)
    active = np.where(z < 1.0, beta, 0.0)
    value = np.maximum(0.0, 1.0 - z)
    reach = np.where(z < 1.0, 1.0 + beta * (np.abs(c.value) + np.abs(r.value)), 0.0)
    return Slopes(value, reach, -active, active, active, active)


def _ipo(c: Side, r: Side, beta: float, _: dict[str, float | None]) -> Slopes:
    target = 1.0 / (2.0 * beta)
    off = c.value - r.value - target
    reach = np.abs(c.value) + np.abs(r.value) + target
    value, slope, size = off**2, 2.0 * off, 2.0 * reach
    return Slopes(value, value + np.abs(slope) * reach, slope, -slope, size, size)


def _dpop(c: Side, r: Side, beta: float, constants: dict[str, float | None]) -> Slopes:
    weight = number("penalty", constants["penalty"], least=0)
    behind = c.shortfall > 0
    held = weight * np.where(behind, c.shortfall, 0.0)
    z = beta * (c.value - r.value - held)
    reach = beta * (np.abs(c.value) + np.abs(r.value) + held)
    value, scale, slope, size = _logistic(z, reach)
    pull = np.where(behind, 1.0 + weight, 1.0)
    return Slopes(value, scale, beta * slope * pull, -beta * slope, beta * size * pull, beta * size)


def _simpo(c: Side, r: Side, beta: float, constants: dict[str, float | None]) -> Slopes:
    gamma = number("margin", constants["margin"], least=-math.inf)
    z = beta * (c.mean - r.mean) - gamma
    return _of_margin(z, beta * (np.abs(c.mean) + np.abs(r.mean)) + abs(gamma), beta)


def _orpo(c: Side, r: Side, beta: float, _: dict[str, float | None]) -> Slopes:
    if np.any(c.mean >= 0) or np.any(r.mean >= 0):
        raise ValueError("`policy` has a completion of probability 1, must be below: its odds are infinite")
    (odds_c, pull_c, reach_c, more_c), (odds_r, pull_r, reach_r, more_r) = _odds(c.mean), _odds(r.mean)
    value, scale, slope, size = _logistic(odds_c - odds_r, reach_c + reach_r)
    return Slopes(
        -c.mean + beta * value,
        np.abs(c.mean) + beta * scale,
        -1.0 + beta * slope * pull_c,
        -beta * slope * pull_r,
        1.0 + beta * size * pull_c * more_c,
        beta * size * pull_r * more_r,
    )


def _odds(a: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """The log-odds a - log(1 - exp a), their slope 1 / (1 - exp a), and what a rounding of a does to both."""
    pull = -1.0 / np.expm1(a)
    odds = a - np.log(-np.expm1(a))
    return odds, pull, np.abs(a) * pull + np.abs(odds) + np.abs(a), 1.0 + np.abs(a) * np.exp(a) * pull


def _cpo(c: Side, r: Side, beta: float, constants: dict[str, float | None]) -> Slopes:
    alpha = number("nll", constants["nll"], least=0)
    found = _of_margin(beta * (c.logprob - r.logprob), beta * (np.abs(c.logprob) + np.abs(r.logprob)), beta)
    each = alpha * len(c.tokens) / max(float(np.sum(c.tokens)), 1.0)  # the mean over pairs divides by P again
    return found._replace(
        loss=found.loss - each * c.logprob,
        loss_scale=found.loss_scale + each * np.abs(c.logprob),
        chosen=found.chosen - each,
        chosen_scale=found.chosen_scale + each,
    )


_FUNCTIONS: dict[str, Callable[[Side, Side, float, dict[str, float | None]], Slopes]] = {
    "dpo": _dpo,
    "hinge": _hinge,
    "ipo": _ipo,
    "dpop": _dpop,
    "simpo": _simpo,
    "orpo": _orpo,
    "cpo": _cpo,
}
