"""The policy losses of GRPO and its relatives, with their analytic gradients and the scale of their errors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reference.oracle.aggregation import ALGORITHMS, row_weights
from reference.oracle.inputs import Bools, Floats, choice, finite, floats, mask_of, number
from reference.oracle.kl import k3

KL_RATIOS = ("token", "sequence", "none")
SEQUENCE_ALGORITHMS = ("gspo", "rloo")
BRANCH_ULPS = 16  # semantics.md, "Branch points": so near a bound either branch is accepted


@dataclass(frozen=True, slots=True, eq=False)
class PolicyLoss:
    """A loss, its gradient with respect to the policy's log-probs, and what an error of either is measured in.

    Attributes:
        loss: minimised; dimensionless.
        gradient: (B, T) float64, d loss / d policy, exactly 0 in masked slots.
        loss_scale: sum of |terms| / denominator.
        gradient_scale: (B, T), |policy part| + |KL part|, the larger of both branches where `near_branch`.
        near_branch: (B, T), the ratio is within 16 ulp of a bound at which the gradient jumps.
        gradient_other: (B, T), the gradient on the other side of that bound; `gradient` elsewhere.
        branch_slack: by how much the loss may differ where `near_branch` lets either branch's value stand.
    """

    loss: float
    gradient: Floats
    loss_scale: float
    gradient_scale: Floats
    near_branch: Bools
    gradient_other: Floats
    branch_slack: float


def policy_loss(
    policy: npt.ArrayLike,
    *,
    old: npt.ArrayLike | None,
    reference: npt.ArrayLike | None,
    advantages: npt.ArrayLike,
    mask: npt.ArrayLike,
    algorithm: str,
    epsilon_low: float | None,
    epsilon_high: float | None,
    delta: float | None,
    beta: float,
    kl_ratio: str | None,
    max_length: int | None = None,
    micro_batches: Sequence[int] | None = None,
    dapo_denominator: str | None = None,
    group_size: int | None = None,
    tokens_in_step: float | None = None,
    weights: npt.ArrayLike | None = None,
    branch_dtype: str | None = None,
) -> PolicyLoss:
    """A step's loss is sum_i a_i sum_t (w l + beta KL) with l = -min(min(r, delta) A, clip(r) A).

    a_i is the row's weight under the algorithm's aggregation (`row_weights`), r the ratio: exp(policy - old) per
    token; its geometric mean over the row for "gspo"; its product over the row for "rloo", whose l = -r A knows no
    clip. KL is k3(reference - policy), times the unclipped ratio that `kl_ratio` names. Masked slots are selected
    away. A clip acts only strictly outside its bound. A = 0 gives l = 0 even where r overflows.

    Args:
        policy: (B, T) log-probs in nats, the variable of the gradient.
        old: (B, T) log-probs of the behaviour policy, a constant; None for on-policy: r = 1, its gradient alive.
        reference: (B, T) log-probs of the reference model; may be None where beta is 0.
        advantages: (B,), or (B, T) for the algorithms with a token ratio; constants.
        mask: (B, T), 1 on completion tokens. A row without tokens adds 0 and counts in B.
        algorithm: "grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo" or "rloo".
        epsilon_low: the lower bound of the ratio is 1 - epsilon_low; None only for "rloo".
        epsilon_high: the upper bound is 1 + epsilon_high; None only for "rloo".
        delta: upper bound on the ratio under a negative advantage, above 1 + epsilon_high; None for none.
        beta: weight of the KL term, at least 0; 0 for "rloo", whose KL is in the reward.
        kl_ratio: "token", "sequence" (the geometric mean) or "none"; not read where beta is 0.
        max_length: see `row_weights`; needed by "dr_grpo", as the next four are by theirs.
        micro_batches: see `row_weights`.
        dapo_denominator: see `row_weights`.
        group_size: see `row_weights`.
        tokens_in_step: see `row_weights`.
        weights: off-policy weights w, constants: (B,), or (B, T) for a token ratio; None for 1.
        branch_dtype: "float32" or "float64", whose ulp `near_branch` counts; None for the dtype of `policy`.

    Returns:
        `PolicyLoss`.

    Raises:
        ValueError: an unknown or missing convention, shapes that do not fit, a value in an unmasked slot that is not
            finite, or delta at most 1 + epsilon_high.

    Source: DeepSeekMath (arXiv 2402.03300), eqs. 3 and 4; DAPO (arXiv 2503.14476), eq. 8; Dr. GRPO (arXiv
        2503.20783), section 3.2; GSPO (arXiv 2507.18071), eqs. 5 and 7; RLOO (arXiv 2402.14740); INTELLECT-2
        (arXiv 2505.07291) for delta.
    """
    choice("algorithm", algorithm, ALGORITHMS)
    counts, ours, difference = _log_ratio(policy, old, mask)
    lengths = np.sum(counts, axis=1, keepdims=True)
    aggregation = row_weights(
        counts,
        algorithm=algorithm,
        max_length=max_length,
        micro_batches=micro_batches,
        dapo_denominator=dapo_denominator,
        group_size=group_size,
        tokens_in_step=tokens_in_step,
    )[:, None]
    ratio, reach = _ratio(difference, lengths, algorithm)
    by_row = algorithm in SEQUENCE_ALGORITHMS
    signal = _per_token("advantages", advantages, counts, by_row=by_row)
    constant = signal if weights is None else signal * _per_token("weights", weights, counts, by_row=by_row)

    ulp_of = np.dtype(branch_dtype or ("float32" if np.asarray(policy).dtype == np.float32 else "float64"))
    clip = _clip(ratio, signal, _bounds(algorithm, epsilon_low, epsilon_high, delta), ulp_of)
    kl = _kl(ours, difference, reference, counts, beta, kl_ratio, algorithm)

    surrogate = -_times(clip.ratio, constant)
    unclipped = -_times(ratio, constant) * reach * aggregation  # d r / d policy = r, at each token that r reaches
    near = clip.near & counts
    kl_gradient = beta * kl.gradient * aggregation
    return PolicyLoss(
        loss=float(np.sum((aggregation * (surrogate + beta * kl.value))[counts])),
        gradient=_select(counts, np.where(clip.alive, unclipped, 0.0) + kl_gradient),
        loss_scale=float(np.sum((aggregation * (np.abs(surrogate) + beta * kl.value))[counts])),
        gradient_scale=_select(
            counts,
            np.where(clip.alive | near, np.abs(unclipped), 0.0) + beta * kl.gradient_scale * aggregation,
        ),
        near_branch=near,
        gradient_other=_select(counts, np.where(clip.alive ^ near, unclipped, 0.0) + kl_gradient),
        branch_slack=float(np.sum((np.abs(constant) * clip.distance * aggregation)[near])),
    )


class _Clip(NamedTuple):
    ratio: Floats  # the ratio that multiplies A in the branch that the minimum takes
    alive: Bools  # the gradient passes
    near: Bools  # within 16 ulp of the bound at which that changes
    distance: Floats  # from that bound


class _Kl(NamedTuple):
    value: Floats
    gradient: Floats
    gradient_scale: Floats


def _log_ratio(policy: npt.ArrayLike, old: npt.ArrayLike | None, mask: npt.ArrayLike) -> tuple[Bools, Floats, Floats]:
    """The mask, the policy's log-probs and their difference from the old ones, both 0 where masked."""
    ours = floats("policy", policy, ndim=2)
    if not ours.size:
        raise ValueError(f"`policy` has shape {ours.shape}, must have at least one row and one slot")
    counts = mask_of(mask, ours.shape)
    ours = finite("policy", _select(counts, ours))
    theirs = ours if old is None else finite("old", _select(counts, floats("old", old, shape=ours.shape)))
    return counts, ours, ours - theirs


def _ratio(difference: Floats, lengths: npt.NDArray[np.int64], algorithm: str) -> tuple[Floats, Floats]:
    """The ratio of every slot, and how many terms of the row's sum one token's log-prob moves, net of d r / d policy.

    Repeating l_i on n_i tokens with weight 1 / (B n_i) is l_i / B. A token moves all n_i copies: by r under a
    product (reach n_i), by r / n_i under a geometric mean (reach 1); a token ratio moves its own term by r (reach 1).
    """
    with np.errstate(over="ignore"):
        if algorithm == "gspo":
            mean = np.sum(difference, axis=1, keepdims=True) / np.maximum(lengths, 1)
            return np.exp(mean) * np.ones_like(difference), np.ones_like(difference)
        if algorithm == "rloo":
            product = np.exp(np.sum(difference, axis=1, keepdims=True))
            return product * np.ones_like(difference), lengths * np.ones_like(difference)
        return np.exp(difference), np.ones_like(difference)


def _bounds(
    algorithm: str, epsilon_low: float | None, epsilon_high: float | None, delta: float | None
) -> tuple[float, float, float]:
    """The ratio's bounds: lower, upper, and upper under a negative advantage."""
    if algorithm == "rloo":
        if (epsilon_low, epsilon_high, delta) != (None, None, None):
            raise ValueError(
                f"`epsilon_low`, `epsilon_high`, `delta` are {epsilon_low}, {epsilon_high}, {delta}, "
                "must be None for 'rloo', which has no clip"
            )
        return -math.inf, math.inf, math.inf
    low = 1.0 - number("epsilon_low", epsilon_low, least=0)
    high = 1.0 + number("epsilon_high", epsilon_high, least=0)
    if delta is not None and not high < delta < math.inf:
        raise ValueError(f"`delta` is {delta}, must be finite and above 1 + epsilon_high = {high}, or None")
    return low, high, math.inf if delta is None else float(delta)


def _clip(ratio: Floats, advantages: Floats, bounds: tuple[float, float, float], ulp_of: np.dtype) -> _Clip:
    """-min(min(r, delta) A, clip(r) A), read off by the sign of A.

    A > 0: the smaller of r and clip(r) is min(r, high). A < 0: the larger of min(r, delta) and clip(r) is
    max(min(r, delta), low). The gradient passes unless r is strictly outside the bound that applies.
    """
    low, high, delta = bounds
    positive, negative = advantages > 0, advantages < 0
    taken = np.where(positive, np.minimum(ratio, high), np.maximum(np.minimum(ratio, delta), low))
    alive = ~((positive & (ratio > high)) | (negative & ((ratio < low) | (ratio > delta))))
    near = np.zeros(ratio.shape, np.bool_)
    distance = np.zeros(ratio.shape)
    for bound, applies in ((low, negative), (high, positive), (delta, negative)):
        if math.isfinite(bound):
            ulp = float(np.spacing(np.abs(ulp_of.type(bound))))
            within = applies & (np.abs(ratio - bound) <= BRANCH_ULPS * ulp)
            near |= within
            distance = np.where(within, np.abs(ratio - bound), distance)
    return _Clip(taken, alive, near, distance)


def _kl(
    policy: Floats,
    difference: Floats,
    reference: npt.ArrayLike | None,
    counts: Bools,
    beta: float,
    kl_ratio: str | None,
    algorithm: str,
) -> _Kl:
    """The term rho k3(d) per slot with d = reference - policy, and its gradient per unit of beta and row weight."""
    number("beta", beta, least=0)
    if beta == 0:
        return _Kl(*np.zeros((3, *counts.shape)))
    if algorithm == "rloo":
        raise ValueError(f"`beta` is {beta}, must be 0 for 'rloo', whose KL is in the reward")
    if reference is None:
        raise ValueError(f"`reference` is None, must be given where beta is {beta}")
    choice("kl_ratio", kl_ratio, KL_RATIOS)
    d = finite("reference", _select(counts, floats("reference", reference, shape=counts.shape))) - policy
    divergence = k3(d)
    lengths = np.maximum(np.sum(counts, axis=1, keepdims=True), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        if kl_ratio == "none":
            slope = -np.expm1(d)
            return _Kl(divergence, slope, np.abs(slope))
        if kl_ratio == "token":  # d (r k3) = r (exp(d) - d - 1) + r (1 - exp(d)) = -r d
            ratio = np.exp(difference)
            return _Kl(ratio * divergence, -ratio * d, ratio * np.abs(d))
        ratio = np.exp(np.sum(difference, axis=1, keepdims=True) / lengths)
        mean = np.sum(divergence, axis=1, keepdims=True) / lengths
        slope = -np.expm1(d)
        return _Kl(ratio * divergence, ratio * (slope + mean), ratio * (np.abs(slope) + mean))


def _per_token(name: str, value: npt.ArrayLike, counts: Bools, *, by_row: bool) -> Floats:
    """(B,) or, where a token has its own, (B, T), as (B, T) with 0 where masked."""
    array = floats(name, value)
    allowed = [counts.shape[:1]] if by_row else [counts.shape[:1], counts.shape]
    if array.shape not in allowed:
        raise ValueError(f"`{name}` has shape {array.shape}, must be {' or '.join(map(str, allowed))}")
    return finite(name, _select(counts, array[:, None] if array.ndim == 1 else array))


def _times(ratio: Floats, constant: Floats) -> Floats:
    """The product, 0 wherever the constant is: an overflowing ratio without advantage is no NaN."""
    return np.multiply(ratio, constant, out=np.zeros(constant.shape), where=constant != 0)


def _select(counts: Bools, array: Floats) -> Floats:
    return np.where(counts, array, 0.0)
