"""The KL term of a policy loss: an estimate per token, and a gradient that flows through its ratio too."""

from typing import NamedTuple

import numpy as np

from reference.oracle.exact import exponential, finite_or_zero, row_means, two_difference
from reference.oracle.inputs import Floats, choice
from reference.oracle.kl import ESTIMATORS, k3
from reference.oracle.surrogates import Batch, times

KL_RATIOS = ("token", "sequence", "none")


class LossKl(NamedTuple):
    """Per slot, per unit of beta and of the row's weight, (B, T).

    Attributes:
        value: rho times the estimate.
        slope: the derivative of the row's sum of values by this slot's log-prob.
        scale: what an error of `slope` is measured in: its absolute terms.
    """

    value: Floats
    slope: Floats
    scale: Floats


def loss_kl(batch: Batch, reference: Floats, *, estimator: str | None, kl_ratio: str | None) -> LossKl:
    """The term is rho k(d) with d = reference - policy and rho = 1, the token's ratio, or the row's mean ratio.

    d k / d policy is 1 for k1 = -d, -d for k2 = d**2 / 2 and 1 - exp(d) for k3. With the token's ratio the slope is
    r (k + dk), which is -r d for k3; with the row's it is rho (dk + the row's mean k), for rho stands n times in the
    row's sum and moves by rho / n.

    Args:
        batch: the step's tokens.
        reference: (B, T) log-probs of the reference model.
        estimator: "k1", "k2" or "k3".
        kl_ratio: "none", "token" or "sequence".

    Returns:
        `LossKl`.

    Raises:
        ValueError: an unknown convention.

    Source: Schulman (2020), "Approximating KL divergence"; DeepSeekMath (arXiv 2402.03300), eq. 4; TRL's
        `use_bias_correction_kl` for the ratio.
    """
    choice("kl_estimator", estimator, ESTIMATORS)
    choice("kl_ratio", kl_ratio, KL_RATIOS)
    d, left = two_difference(reference, batch.policy)
    lost = finite_or_zero(left)
    with np.errstate(over="ignore", invalid="ignore"):
        estimate, slope = _estimate(d, lost, str(estimator))
        if kl_ratio == "none":
            return LossKl(estimate, slope, np.abs(slope))
        if kl_ratio == "token":
            ratio = exponential(batch.difference, batch.lost)
            both = -d if estimator == "k3" else estimate + slope
            terms = np.abs(d) if estimator == "k3" else np.abs(estimate) + np.abs(slope)
            return LossKl(times(ratio, estimate), times(ratio, both), times(ratio, terms))
        ratio = exponential(*row_means(batch.difference, batch.lost, batch.lengths))[:, None] * np.ones(d.shape)
        sizes = np.maximum(batch.lengths, 1)[:, None]
        inside = np.where(batch.counts, estimate, 0.0)
        mean = np.sum(inside, axis=1, keepdims=True) / sizes
        reach = np.sum(np.abs(inside), axis=1, keepdims=True) / sizes
        return LossKl(times(ratio, estimate), times(ratio, slope + mean), times(ratio, np.abs(slope) + reach))


def _estimate(d: Floats, lost: Floats, estimator: str) -> tuple[Floats, Floats]:
    """The estimate and its derivative by the policy's log-prob."""
    if estimator == "k1":
        return -d + 0.0, np.ones(d.shape)
    if estimator == "k2":
        return d**2 / 2.0 + finite_or_zero(d * lost), -d
    value = k3(d) + finite_or_zero(np.expm1(d) * lost)
    return value, -np.expm1(d) - finite_or_zero(np.exp(d) * lost)
