"""The losses that learn from a chosen and a rejected completion, with their analytic gradients and the scale of their errors."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import preference as definition
from gates_reference.oracle.definitions.exact import total
from gates_reference.oracle.errors import preference as errors
from gates_reference.oracle.inputs import Bools, Floats, choice, finite, floats, mask_of, number, positive

DEFINITIONS: dict[str, Callable[..., definition.Pairs]] = {
    "dpo": definition.dpo,
    "hinge": definition.hinge,
    "ipo": definition.ipo,
    "dpop": definition.dpop,
    "orpo": definition.orpo,
    "simpo": definition.simpo,
    "cpo": definition.cpo,
    "orpo without a likelihood": definition.odds_ratio,
}
ERRORS: dict[str, Callable[..., errors.Scales]] = {
    "dpo": errors.dpo,
    "hinge": errors.hinge,
    "ipo": errors.ipo,
    "dpop": errors.dpop,
    "orpo": errors.orpo,
    "simpo": errors.simpo,
    "cpo": errors.cpo,
    "orpo without a likelihood": errors.odds_ratio,
}
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
    attention_mask: npt.ArrayLike | None = None,
) -> PreferenceLoss:
    """The mean over pairs of a function of both completions' log-probs, with x the difference of the two log-ratios.

    A log-ratio is sum_t policy - reference over completion tokens; Delta = beta x.

    - "dpo": -(1 - s) log sigma(Delta) - s log sigma(-Delta), s = label_smoothing (conservative DPO);
    - "hinge": max(0, 1 - Delta) (SLiC);
    - "ipo": (x - 1 / (2 beta))^2, log-ratios summed or averaged over tokens as `lengths` says;
    - "dpop": -log sigma(Delta - beta lambda max(0, reference_c - policy_c)), lambda = penalty;
    - "simpo": -log sigma(beta (mean_c - mean_r) - gamma), gamma = margin, means of the policy's log-probs;
    - "orpo": -mean_c - lambda log sigma(odds_c - odds_r), odds = a - log(1 - exp a) of the mean a, lambda = beta: the
      negative log-likelihood is the chosen completion's own token mean, or that of all tokens of the chosen rows
      together, prompts included, where `attention_mask` says which;
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
        attention_mask: "orpo" only: (2 P, T), 1 on prompt and completion tokens; None elsewhere.

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
        "attention_mask": (attention_mask, "orpo"),
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
    chosen, rejected = (definition.side(values[k::2], base[k::2], counts[k::2], averaged=averaged) for k in (0, 1))
    if loss == "orpo" and (np.any(chosen.mean >= 0) or np.any(rejected.mean >= 0)):
        raise ValueError("`policy` has a completion of probability 1, must be below: its odds are infinite")
    own = _own_constant(loss, label_smoothing=label_smoothing, penalty=penalty, margin=margin, nll=nll)
    name = loss if attention_mask is None else "orpo without a likelihood"
    pairs = DEFINITIONS[name](chosen, rejected, beta, *own)
    scales = ERRORS[name](chosen, rejected, beta, *own)
    share = 1.0 / (len(values) // 2)
    gradient, sizes = np.zeros(values.shape), np.zeros(values.shape)
    for k, side, slope, size in (
        (0, chosen, pairs.chosen, scales.chosen),
        (1, rejected, pairs.rejected, scales.rejected),
    ):
        by_token = (share / np.maximum(side.tokens, 1.0) if averaged else share) * np.ones(len(slope))
        gradient[k::2] = np.where(counts[k::2], (slope * by_token)[:, None], 0.0)
        sizes[k::2] = np.where(counts[k::2], (size * by_token)[:, None], 0.0)
    found = PreferenceLoss(total(pairs.loss) * share, gradient, total(scales.loss) * share, sizes)
    return found if attention_mask is None else _with_likelihood(found, policy, attention_mask)


def _with_likelihood(found: PreferenceLoss, policy: npt.ArrayLike, attention_mask: npt.ArrayLike) -> PreferenceLoss:
    """Add the likelihood of all tokens of the chosen rows."""
    values, counts = _masked(policy, attention_mask)
    counts = counts & (np.arange(len(counts)) % 2 == 0)[:, None]
    nll, slope = definition.likelihood(values, counts)
    size, slope_size = errors.likelihood(values, counts)
    return PreferenceLoss(
        found.loss + nll,
        found.gradient + np.where(counts, slope, 0.0),
        found.loss_scale + size,
        found.gradient_scale + np.where(counts, slope_size, 0.0),
    )


def _own_constant(
    loss: str, *, label_smoothing: float | None, penalty: float | None, margin: float | None, nll: float | None
) -> tuple[float, ...]:
    """The constant that only this loss has, if it has one."""
    if loss == "dpo":
        if label_smoothing == 0.5:
            raise ValueError("`label_smoothing` is 0.5, must be below: at 0.5 no side is preferred")
        return (number("label_smoothing", label_smoothing, least=0, most=0.5),)
    if loss == "dpop":
        return (number("penalty", penalty, least=0),)
    if loss == "simpo":
        return (number("margin", margin, least=-math.inf),)
    return (number("nll", nll, least=0),) if loss == "cpo" else ()


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
        mismatched: (M,) summed log-ratios of completions under other prompts.
        beta: above 0.
        desirable_weight: lambda_D, at least 0.
        undesirable_weight: lambda_U, at least 0.

    Returns:
        `PreferenceLoss`.

    Raises:
        ValueError: shapes that do not fit, or no mismatched log-ratio.

    Source: KTO (arXiv 2402.01306), section 4; docs/definitions.md, "Preference losses": z0 is estimated from mismatched pairs and detached.
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
    anchor = definition.kto_anchor(others)
    log_ratio = definition.side(values, base, counts, averaged=False).log_ratio
    sign, weight = np.where(good, 1.0, -1.0), np.where(good, up, down)
    losses, slopes = definition.kto(log_ratio, anchor, beta, sign, weight)
    loss_scales, slope_scales = errors.kto(log_ratio, anchor, others, beta, sign, weight)
    share = 1.0 / len(values)
    gradient = np.where(counts, (slopes * share)[:, None], 0.0)
    sizes = np.where(counts, (slope_scales * share)[:, None], 0.0)
    return PreferenceLoss(total(losses) * share, gradient, total(loss_scales) * share, sizes)


def _masked(array: npt.ArrayLike, mask: npt.ArrayLike, shape: tuple[int, ...] | None = None) -> tuple[Floats, Bools]:
    values = floats("log-probs", array, ndim=2, shape=shape)
    counts = mask_of(mask, values.shape)
    return finite("log-probs", np.where(counts, values, 0.0)), counts
