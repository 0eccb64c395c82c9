"""How far the policy has moved from the policy that sampled: ratios and corrections."""

import numpy as np
import numpy.typing as npt

from reference.oracle.exact import exponential, finite_or_zero, row_means, row_sums, two_difference
from reference.oracle.inputs import Bools, Floats, choice, floats, number, positive
from reference.oracle.rows import Rows, rows_of

SEQUENCE_LEVELS = ("seq_mean", "seq_sum")
LEVELS = ("token", *SEQUENCE_LEVELS)
CORRECTIONS = ("tis", "mis")
BRANCH_ULPS = 16  # semantics.md, "Branch points": so near a bound either branch is accepted


def importance_ratio(
    policy: npt.ArrayLike,
    old: npt.ArrayLike,
    *,
    level: str,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
) -> Floats:
    """The ratio is exp of policy - old: of a token, of its mean over a sequence, or of its sum.

    Args:
        policy: (B, T), or (N,) with `lengths`: log-probs in nats of the policy being trained.
        old: log-probs of the policy that is the ratio's denominator, of the same shape.
        level: "token", "seq_mean" (GSPO) or "seq_sum" (RLOO, and TIS and MIS per sequence).
        mask: (B, T), 1 on completion tokens; what the other slots hold is not read. Or
        lengths: (B,), valid prefixes, or the lengths of a flat array's sequences.

    Returns:
        "token": float64 of the shape of `policy`, 0.0 in slots without a token. Otherwise (B,) float64; 1.0 for a
        sequence without tokens. An overflowing ratio is +inf.

    Raises:
        ValueError: an unknown level, shapes that differ, a mask other than 0 and 1.

    Source: PPO (arXiv 1707.06347), section 3 ("token"); GSPO (arXiv 2507.18071), eq. 7 ("seq_mean"); RLOO (arXiv
        2402.14740) ("seq_sum").
    """
    choice("level", level, LEVELS)
    difference, lost, rows = log_ratio(policy, old, mask, lengths)
    if level == "token":
        return rows.back(np.where(rows.counts, exponential(difference, lost), 0.0))
    if level == "seq_mean":
        return exponential(*row_means(difference, lost, rows.lengths))
    return exponential(*row_sums(difference, lost))


def token_ratio(policy: npt.ArrayLike, old: npt.ArrayLike, mask: npt.ArrayLike) -> Floats:
    """The ratio of a token is exp(policy - old): `importance_ratio` at level "token".

    Args:
        policy: (B, T) log-probs in nats.
        old: (B, T) log-probs.
        mask: (B, T), 1 on completion tokens.

    Returns:
        (B, T) float64, 0.0 in masked slots.

    Raises:
        ValueError: as `importance_ratio`.

    Source: PPO (arXiv 1707.06347), section 3.
    """
    return importance_ratio(policy, old, level="token", mask=mask)


def sequence_ratio(policy: npt.ArrayLike, old: npt.ArrayLike, mask: npt.ArrayLike, *, level: str) -> Floats:
    """The ratio of a sequence: `importance_ratio` at level "seq_mean" or "seq_sum".

    Args:
        policy: (B, T) log-probs in nats.
        old: (B, T) log-probs.
        mask: (B, T), 1 on completion tokens.
        level: "seq_mean" or "seq_sum".

    Returns:
        (B,) float64; 1.0 for a sequence without tokens.

    Raises:
        ValueError: as `importance_ratio`, and for level "token".

    Source: GSPO (arXiv 2507.18071), eq. 7 ("seq_mean"); RLOO (arXiv 2402.14740) ("seq_sum").
    """
    choice("level", level, SEQUENCE_LEVELS)
    return importance_ratio(policy, old, level=level, mask=mask)


def ratio_scale(
    policy: npt.ArrayLike,
    old: npt.ArrayLike,
    *,
    level: str,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
    u: float,
) -> Floats:
    """The error of a ratio is measured in units of |r|, of a sequence's in |r| (1 + u sum |d|).

    Args:
        policy: as in `importance_ratio`.
        old: as in `importance_ratio`.
        level: as in `importance_ratio`.
        mask: as in `importance_ratio`.
        lengths: as in `importance_ratio`.
        u: half an ulp of 1 in the dtype of the data.

    Returns:
        float64 of the shape of `importance_ratio`.

    Raises:
        ValueError: as `importance_ratio`.

    Source: semantics.md, "Accuracy": a compensated sum errs by u times itself and u**2 times its absolute terms.
    """
    ratio = importance_ratio(policy, old, level=level, mask=mask, lengths=lengths)
    if level == "token":
        return ratio
    difference, _, _ = log_ratio(policy, old, mask, lengths)
    size: Floats = np.sum(np.abs(difference), axis=1)
    return ratio * (1.0 + u * size)


def importance_weights(
    old: npt.ArrayLike,
    sampling: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
    *,
    correction: str,
    level: str,
    c_min: float | None,
    c_max: float,
    lengths: npt.ArrayLike | None = None,
) -> Floats:
    """With r = exp(old - sampling): TIS clamps r to [c_min, c_max], MIS keeps r inside them, ends included, else 0.

    The weights are constants: no gradient passes through them. A NaN sampling log-prob counts as a difference of 0.

    Args:
        old: (B, T), or (N,) with `lengths`: log-probs in nats of the trainer's behaviour policy.
        sampling: log-probs of the sampler of the same shape, NaN where it recorded none.
        mask: (B, T), 1 on completion tokens; or
        correction: "tis" or "mis".
        level: "token", or "seq_sum" (differences summed over the sequence).
        c_min: lower bound, or None for none.
        c_max: upper bound, above 0.
        lengths: (B,), valid prefixes, or the lengths of a flat array's sequences.

    Returns:
        "token": float64 of the shape of `old`, 0.0 in slots without a token. "seq_sum": (B,) float64, from r = 1 for
        an empty sequence.

    Raises:
        ValueError: an unknown convention, shapes that differ, bounds that are out of order.

    Source: Yao et al. (2025), "Your efficient RL framework secretly brings you off-policy RL training" (TIS);
        masked importance sampling as in TRL's `vllm_importance_sampling_mode`.
    """
    choice("correction", correction, CORRECTIONS)
    choice("level", level, ("token", "seq_sum"))
    highest = positive("c_max", c_max)
    lowest = 0.0 if c_min is None else number("c_min", c_min, least=0, most=highest)
    ratio = importance_ratio(old, recorded(old, sampling), level=level, mask=mask, lengths=lengths)
    if correction == "tis":
        weights = np.minimum(np.maximum(ratio, lowest), highest)
    else:
        weights = np.where((ratio >= lowest) & (ratio <= highest), ratio, 0.0)
    if level == "token":
        rows = rows_of("old", weights.shape, mask=mask, lengths=lengths)
        return rows.back(rows.grid("weights", weights))
    return weights


def recorded(old: npt.ArrayLike, sampling: npt.ArrayLike) -> Floats:
    """The sampler's log-probs, and where it recorded none (NaN) the trainer's own: a difference of 0.

    Args:
        old: log-probs in nats of the trainer's behaviour policy.
        sampling: log-probs of the sampler of the same shape.

    Returns:
        float64 of the same shape.

    Raises:
        ValueError: shapes that differ.

    Source: semantics.md, "Off-policy corrections".
    """
    ours = floats("old", old)
    theirs = floats("sampling", sampling, shape=ours.shape)
    return np.where(np.isnan(theirs), ours, theirs)


def log_ratio(
    policy: npt.ArrayLike, old: npt.ArrayLike, mask: npt.ArrayLike | None, lengths: npt.ArrayLike | None
) -> tuple[Floats, Floats, Rows]:
    """The difference policy - old in float64 and what its rounding lost, both (B, T) and 0 where no token stands.

    Args:
        policy: as in `importance_ratio`.
        old: as in `importance_ratio`.
        mask: as in `importance_ratio`.
        lengths: as in `importance_ratio`.

    Returns:
        The difference, the loss, and the rows.

    Raises:
        ValueError: as `importance_ratio`.

    Source: `two_difference`.
    """
    rows = rows_of("policy", np.shape(policy), mask=mask, lengths=lengths)
    difference, lost = two_difference(rows.grid("policy", policy), rows.grid("old", old))
    return difference, finite_or_zero(lost), rows


def near_bound(ratio: Floats, bounds: tuple[float, ...], dtype: np.dtype) -> Bools:
    """Whether a ratio is within 16 ulp of one of the bounds, where either branch is accepted.

    Args:
        ratio: any shape, float64.
        bounds: those that jump; infinite ones are never near.
        dtype: whose ulp is counted.

    Returns:
        bool of the same shape.

    Source: semantics.md, "Branch points".
    """
    near = np.zeros(ratio.shape, np.bool_)
    for bound in bounds:
        if np.isfinite(bound):
            near |= np.abs(ratio - bound) <= BRANCH_ULPS * float(np.spacing(np.abs(dtype.type(bound))))
    return near
