"""The terms of a policy loss for one algorithm and its constants: the surrogate and the KL, each with its tolerance."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from reference.oracle.definitions import exact
from reference.oracle.definitions import loss_kl as kl_definition
from reference.oracle.definitions import losses as definition
from reference.oracle.definitions.kl import ESTIMATORS
from reference.oracle.definitions.losses import Batch, Bounds, Term
from reference.oracle.errors import losses as errors
from reference.oracle.errors.losses import Tolerance
from reference.oracle.inputs import Floats, choice, number, positive

CISPO_BOUNDS = ("relative", "absolute")
KL_RATIOS = ("token", "sequence", "none")


class Settings(NamedTuple):
    """The constants of the surrogates, as `policy_loss` takes them."""

    algorithm: str
    epsilon_low: float | None
    epsilon_high: float | None
    delta: float | None
    cispo_bound: str | None
    temperature_positive: float | None
    temperature_negative: float | None


def surrogate(batch: Batch, settings: Settings, dtype: np.dtype) -> tuple[Term, Tolerance]:
    """Return the algorithm's term and its tolerance.

    Args:
        batch: the step's tokens.
        settings: the algorithm and its constants.
        dtype: whose ulp the rule for branch points counts.

    Raises:
        ValueError: a constant is missing, does not fit, or is one that the algorithm does not have.

    Source: as `policy_loss`.
    """
    term = definition.DEFINITIONS[settings.algorithm].term
    if term is definition.rloo and settings.epsilon_low is not None:
        term = definition.rloo_clipped
    form = FORMS.get(term, Form())
    _refuse_unused(settings, form.unused)
    if form.constants is None:
        found = term(batch)
        return found, errors.smooth(found)
    constants = form.constants(batch, settings)
    found = term(batch, constants)
    return found, form.tolerance(batch, constants, found, dtype)


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


def _refuse_unused(settings: Settings, names: tuple[str, ...]) -> None:
    if given := {name: value for name in names if (value := getattr(settings, name)) is not None}:
        raise ValueError(
            f"{', '.join(f'`{name}` is {value}' for name, value in given.items())}, "
            f"must be None for {settings.algorithm!r}, which has no such bound"
        )


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


def _cispo_cap(_: Batch, settings: Settings) -> float:
    choice("cispo_bound", settings.cispo_bound, CISPO_BOUNDS)
    width = positive("epsilon_high", settings.epsilon_high)
    return 1.0 + width if settings.cispo_bound == "relative" else width


def _temperatures(batch: Batch, settings: Settings) -> Floats:
    up = positive("sapo_temperature_positive", settings.temperature_positive)
    down = positive("sapo_temperature_negative", settings.temperature_negative)
    return np.where(batch.advantages > 0, up, down)


def _smooth(_batch: Batch, _constants: Any, term: Term, _dtype: np.dtype) -> Tolerance:
    return errors.smooth(term)


class Form(NamedTuple):
    """What belongs to a term; as it stands, to one that takes no constants and whose slope jumps nowhere.

    Attributes:
        constants: makes what the term takes besides the batch.
        tolerance: of the batch, the constants, the term and the dtype.
        unused: constants that the term does not have: they are refused, not ignored.
    """

    constants: Callable[[Batch, Settings], Any] | None = None
    tolerance: Callable[[Batch, Any, Term, np.dtype], Tolerance] = _smooth
    unused: tuple[str, ...] = ("epsilon_low", "epsilon_high", "delta")


FORMS: Mapping[Callable[..., Term], Form] = {
    definition.token_clipped: Form(_ratio_bounds, errors.token_clipped, ()),
    definition.mean_clipped: Form(_ratio_bounds, errors.mean_clipped, ()),
    definition.rloo_clipped: Form(_ratio_bounds, errors.rloo_clipped, ()),
    definition.cispo: Form(_cispo_cap, unused=("epsilon_low", "delta")),
    definition.sapo: Form(_temperatures, errors.sapo),
    definition.gmpo: Form(_log_bounds, errors.gmpo, ("delta",)),
}
