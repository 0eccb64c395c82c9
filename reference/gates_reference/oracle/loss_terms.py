"""The terms of a policy loss for one algorithm and its constants: the surrogate and the KL, each with its tolerance."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions import loss_axes as axes
from gates_reference.oracle.definitions import loss_kl as kl_definition
from gates_reference.oracle.definitions import losses as definition
from gates_reference.oracle.definitions.kl import ESTIMATORS
from gates_reference.oracle.definitions.loss_axes import Ratio
from gates_reference.oracle.definitions.losses import Batch, Bounds, Definition, Taper, Term
from gates_reference.oracle.errors import losses as errors
from gates_reference.oracle.errors.losses import Tolerance
from gates_reference.oracle.inputs import Floats, choice, number, positive

CISPO_BOUNDS = ("relative", "absolute")
KL_RATIOS = ("token", "sequence", "none")


class Settings(NamedTuple):
    """The constants of the surrogates, as `policy_loss` takes them, and the name that messages have."""

    algorithm: str
    epsilon_low: float | None
    epsilon_high: float | None
    delta: float | None
    cispo_bound: str | None
    sapo_temperature_positive: float | None
    sapo_temperature_negative: float | None
    vespo_k_positive: float | None
    vespo_lambda_positive: float | None
    vespo_k_negative: float | None
    vespo_lambda_negative: float | None


def surrogate(
    batch: Batch, one: Definition, settings: Settings, dtype: np.dtype, *, literal: bool = True
) -> tuple[Term, Tolerance]:
    """Return a loss's term and its tolerance.

    Args:
        batch: the step's tokens.
        one: the loss, whose bound is a clip where an unbounded one is given widths.
        settings: its constants.
        dtype: whose ulp the rule for branch points counts.
        literal: whether the term is the loss's own, or composed of its choices.

    Raises:
        ValueError: a constant is missing, does not fit, or is one that the loss does not have.

    Source: as `policy_loss`.
    """
    if one.ratio_level == "none":
        _refuse_unused(settings, BOUNDS["none"].takes)
        term = definition.reinforce(batch)
        return term, errors.smooth(term)
    if one.bound == "none" and settings.epsilon_low is not None:
        one, literal = one._replace(bound="clip"), False
    form, ratio = BOUNDS[one.bound], axes.RATIOS[one.ratio_level](batch)
    _refuse_unused(settings, form.takes)
    constants = form.constants(batch, settings)
    if literal:
        term = one.term(batch) if constants is None else one.term(batch, constants)
    else:
        term = form.term(batch, ratio, constants)
    return term, form.tolerance(batch, ratio, constants, term, dtype)


def loss_kl(
    batch: Batch, reference: Floats, *, estimator: str | None, kl_ratio: str | None, clamp: float | None = None
) -> tuple[Term, Floats]:
    """Return the KL's term, per unit of beta, and what an error of its slope is measured in.

    Args:
        batch: the step's tokens.
        reference: (B, T) log-probs of the reference model.
        estimator: "k1", "k2" or "k3".
        kl_ratio: "none", "token" or "sequence".
        clamp: the largest |estimate|, above 0; None for none.

    Raises:
        ValueError: an unknown convention.

    Source: as `policy_loss`.
    """
    choice("kl_estimator", estimator, ESTIMATORS)
    choice("kl_ratio", kl_ratio, KL_RATIOS)
    d, name, level = exact.difference(reference, batch.policy), str(estimator), str(kl_ratio)
    with np.errstate(over="ignore", invalid="ignore"):
        if clamp is not None:
            limit = positive("kl_clamp", clamp)
            term = kl_definition.weighed(batch, kl_definition.clamped(d, name, limit), level)
        elif level == "token":
            term = kl_definition.by_token_ratio(batch, d, name)
        elif level == "sequence":
            term = kl_definition.by_sequence_ratio(batch, d, name)
        else:
            term = kl_definition.unweighted(d, name)
        return term, errors.kl_scale(batch, d, name, level, clamp)


def _refuse_unused(settings: Settings, takes: tuple[str, ...]) -> None:
    names = [name for name in REFUSED if name not in takes and getattr(settings, name) is not None]
    if names:
        given = ", ".join(f"`{name}` is {getattr(settings, name)}" for name in names)
        raise ValueError(f"{given}, must be None for {settings.algorithm!r}, which has no such bound")


def _ratio_bounds(_: Batch, settings: Settings) -> Bounds:
    low = 1.0 - number("epsilon_low", settings.epsilon_low, least=0)
    high = 1.0 + number("epsilon_high", settings.epsilon_high, least=0)
    delta = math.inf if settings.delta is None else float(settings.delta)
    if settings.delta is not None and not high < delta < math.inf:
        raise ValueError(f"`delta` is {settings.delta}, must be finite and above 1 + epsilon_high = {high}, or None")
    return Bounds(low, high, delta)


def _log_bounds(_: Batch, settings: Settings) -> Bounds:
    low = -number("epsilon_low", settings.epsilon_low, least=0)
    return Bounds(low, number("epsilon_high", settings.epsilon_high, least=0))


def _cap(_: Batch, settings: Settings) -> Bounds:
    choice("cispo_bound", settings.cispo_bound, CISPO_BOUNDS)
    width, low = positive("epsilon_high", settings.epsilon_high), 0.0
    if settings.epsilon_low is not None:
        low = 1.0 - number("epsilon_low", settings.epsilon_low, least=0)
    return Bounds(low, 1.0 + width if settings.cispo_bound == "relative" else width)


def _temperatures(batch: Batch, settings: Settings) -> Floats:
    up = positive("sapo_temperature_positive", settings.sapo_temperature_positive)
    down = positive("sapo_temperature_negative", settings.sapo_temperature_negative)
    return np.where(batch.advantages > 0, up, down)


def _taper(batch: Batch, settings: Settings) -> Taper:
    def by_sign(name: str) -> Floats:
        gain, loss = (
            number(f"vespo_{name}_{sign}", getattr(settings, f"vespo_{name}_{sign}"), least=0)
            for sign in ("positive", "negative")
        )
        return np.where(batch.advantages >= 0, gain, loss)

    return Taper(by_sign("k"), by_sign("lambda"))


class Form(NamedTuple):
    """What belongs to a bound.

    Attributes:
        takes: the constants that it has; others are refused, not ignored.
        constants: makes what its term takes besides the batch and the ratio.
        term: of the batch, the ratio and the constants.
        tolerance: of the batch, the ratio, the constants, the term and the dtype.
    """

    takes: tuple[str, ...]
    constants: Callable[[Batch, Settings], Any]
    term: Callable[[Batch, Ratio, Any], Term]
    tolerance: Callable[[Batch, Ratio, Any, Term, np.dtype], Tolerance]


VESPO = ("vespo_k_positive", "vespo_lambda_positive", "vespo_k_negative", "vespo_lambda_negative")
REFUSED = ("epsilon_low", "epsilon_high", "delta", *VESPO)
WIDTHS = ("epsilon_low", "epsilon_high")
BOUNDS: Mapping[str, Form] = {
    "none": Form((), lambda *_: None, lambda batch, ratio, _: axes.unbounded(batch, ratio), errors.unbounded),
    "clip": Form((*WIDTHS, "delta"), _ratio_bounds, axes.clipped, errors.clipped),
    "log-clip": Form(WIDTHS, _log_bounds, axes.clipped_in_nats, errors.clipped_in_nats),
    "cap": Form(WIDTHS, _cap, axes.capped, errors.unbounded),
    "gate": Form((), _temperatures, axes.gated, errors.gated),
    "taper": Form(VESPO, _taper, axes.tapered, errors.tapered),
}
