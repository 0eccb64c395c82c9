"""How far the policy has moved from the policy that sampled: ratios and corrections."""

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions import ratio as definition
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.errors import ratio as errors
from gates_reference.oracle.errors.branches import near_bound
from gates_reference.oracle.inputs import Floats, choice, floats, number, positive
from gates_reference.oracle.rows import Rows, rows_of

SEQUENCE_LEVELS = ("seq_mean", "seq_sum")
LEVELS = ("token", *SEQUENCE_LEVELS)
CORRECTIONS = ("tis", "mis")

__all__ = [
    "CORRECTIONS",
    "LEVELS",
    "importance_ratio",
    "importance_weights",
    "log_ratio",
    "near_bound",
    "ratio_scale",
    "recorded",
    "sequence_ratio",
    "token_ratio",
]


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
    moved, rows = log_ratio(policy, old, mask, lengths)
    if level == "token":
        return rows.back(np.where(rows.counts, definition.token_ratio(moved), 0.0))
    if level == "seq_mean":
        return definition.sequence_mean(moved, rows.lengths)
    return definition.sequence_product(moved)


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

    Source: docs/definitions.md, "Accuracy": a compensated sum errs by u times itself and u**2 times its absolute terms.
    """
    ratio = importance_ratio(policy, old, level=level, mask=mask, lengths=lengths)
    if level == "token":
        return ratio
    return errors.sequence_scale(ratio, log_ratio(policy, old, mask, lengths)[0].value, u)


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
    weights = (definition.truncated if correction == "tis" else definition.masked)(ratio, lowest, highest)
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

    Source: docs/definitions.md, "Off-policy corrections".
    """
    behaviour = floats("old", old)
    return definition.recorded(behaviour, floats("sampling", sampling, shape=behaviour.shape))


def log_ratio(
    policy: npt.ArrayLike, old: npt.ArrayLike, mask: npt.ArrayLike | None, lengths: npt.ArrayLike | None
) -> tuple[Exact, Rows]:
    """Return the difference policy - old, (B, T) and 0 where no token stands, and the rows.

    Args:
        policy: as in `importance_ratio`.
        old: as in `importance_ratio`.
        mask: as in `importance_ratio`.
        lengths: as in `importance_ratio`.

    Raises:
        ValueError: as `importance_ratio`.

    Source: the definition of the log ratio.
    """
    rows = rows_of("policy", np.shape(policy), mask=mask, lengths=lengths)
    return exact.difference(rows.grid("policy", policy), rows.grid("old", old)), rows
