"""How far the policy has moved from the policy that sampled: ratios, corrections and their statistics."""

import numpy as np
import numpy.typing as npt

from reference.oracle.exact import finite_or_zero, two_difference, two_sum
from reference.oracle.inputs import Bools, Floats, choice, floats, mask_of, number, positive
from reference.oracle.kl import k3

SEQUENCE_LEVELS = ("seq_mean", "seq_sum")


def token_ratio(policy: npt.ArrayLike, old: npt.ArrayLike, mask: npt.ArrayLike) -> Floats:
    """The ratio of a token is exp(policy - old); an overflowing one is +inf.

    Args:
        policy: (B, T) log-probs in nats of the policy being trained.
        old: (B, T) log-probs of the policy that is the ratio's denominator.
        mask: (B, T), 1 on completion tokens; what the other slots hold is not read.

    Returns:
        (B, T) float64, 0.0 in masked slots.

    Raises:
        ValueError: shapes that differ, or a mask other than 0 and 1.

    Source: PPO (arXiv 1707.06347), section 3.
    """
    difference, lost, counts = _difference(policy, old, mask)
    return np.where(counts, _exp(difference, lost), 0.0)


def sequence_ratio(policy: npt.ArrayLike, old: npt.ArrayLike, mask: npt.ArrayLike, *, level: str) -> Floats:
    """The ratio of a sequence is exp of the mean ("seq_mean") or of the sum ("seq_sum") of its token differences.

    Args:
        policy: (B, T) log-probs in nats.
        old: (B, T) log-probs.
        mask: (B, T), 1 on completion tokens.
        level: "seq_mean" (GSPO) or "seq_sum" (RLOO, and TIS and MIS per sequence).

    Returns:
        (B,) float64; 1.0 for a sequence without tokens.

    Raises:
        ValueError: an unknown level, shapes that differ, or a mask other than 0 and 1.

    Source: GSPO (arXiv 2507.18071), eq. 7 ("seq_mean"); RLOO (arXiv 2402.14740) ("seq_sum").
    """
    choice("level", level, SEQUENCE_LEVELS)
    difference, lost, counts = _difference(policy, old, mask)
    total, rest = _row_sums(difference, lost)
    sizes = np.maximum(np.sum(counts, axis=1), 1) if level == "seq_mean" else 1
    return _exp(total / sizes, rest / sizes)


def importance_weights(
    old: npt.ArrayLike,
    sampling: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    correction: str,
    level: str,
    c_min: float | None,
    c_max: float,
) -> Floats:
    """With r = exp(old - sampling): TIS clamps r to [c_min, c_max], MIS keeps r inside them, ends included, else 0.

    The weights are constants: no gradient passes through them. A NaN sampling log-prob counts as a difference of 0.

    Args:
        old: (B, T) log-probs in nats of the trainer's behaviour policy.
        sampling: (B, T) log-probs of the sampler, NaN where it recorded none.
        mask: (B, T), 1 on completion tokens.
        correction: "tis" or "mis".
        level: "token", or "seq_sum" (differences summed over the sequence).
        c_min: lower bound, or None for none.
        c_max: upper bound, above 0.

    Returns:
        "token": (B, T) float64, 0.0 in masked slots. "seq_sum": (B,) float64, from r = 1 for an empty sequence.

    Raises:
        ValueError: an unknown convention, shapes that differ, bounds that are out of order.

    Source: Yao et al. (2025), "Your efficient RL framework secretly brings you off-policy RL training" (TIS);
        masked importance sampling as in TRL's `vllm_importance_sampling_mode`.
    """
    choice("correction", correction, ("tis", "mis"))
    choice("level", level, ("token", "seq_sum"))
    highest = positive("c_max", c_max)
    lowest = 0.0 if c_min is None else number("c_min", c_min, least=0, most=highest)
    recorded = np.where(np.isnan(floats("sampling", sampling)), old, sampling)
    if level == "token":
        ratio = token_ratio(old, recorded, mask)
    else:
        ratio = sequence_ratio(old, recorded, mask, level="seq_sum")
    if correction == "tis":
        weights = np.minimum(np.maximum(ratio, lowest), highest)
    else:
        weights = np.where((ratio >= lowest) & (ratio <= highest), ratio, 0.0)
    return np.where(mask_of(mask, weights.shape), weights, 0.0) if level == "token" else weights


def ratio_statistics(
    policy: npt.ArrayLike,
    behaviour: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    epsilon_low: float,
    epsilon_high: float,
    advantages: npt.ArrayLike | None,
) -> dict[str, float]:
    """Twelve numbers say how far D = policy - behaviour has moved, per token and, as `seq_sum_*`, per sequence.

    Only masked-in tokens count, and only sequences that have one. Samples come from the behaviour policy.

    Args:
        policy: (B, T) log-probs in nats.
        behaviour: (B, T) log-probs of the policy that sampled.
        mask: (B, T), 1 on completion tokens.
        epsilon_low: the lower clip bound is 1 - epsilon_low.
        epsilon_high: the upper clip bound is 1 + epsilon_high.
        advantages: (B,), whose sign decides what a clip touches; None leaves the `clipped_*` shares out.

    Returns:
        With r = exp(D): `mean` r, `max_abs` |D|, `p99_abs` |D| (linear-interpolation quantile), `k3` = mean k3(D),
        `chi2` = mean expm1(2 D), `ess_per_n` = (sum r)**2 / (n sum r**2), `mult_err` = mean exp|D|,
        `outside_low` and `outside_high` = shares with r below or above its bound, `clipped_low` and `clipped_high`
        = those with a negative or positive advantage; the same with the prefix `seq_sum_` for D summed over each
        sequence; `min_sequence_ratio` and `max_sequence_ratio` of the latter.

    Raises:
        ValueError: shapes that differ, or no token at all.

    Source: semantics.md, "Ratio statistics"; ESS: Kong (1992); k3: Schulman (2020).
    """
    difference, lost, counts = _difference(policy, behaviour, mask)
    rows = np.any(counts, axis=1)
    if not np.any(rows):
        raise ValueError(f"`mask` of shape {counts.shape} holds no token, must hold at least one")
    low, high = 1.0 - number("epsilon_low", epsilon_low, least=0), 1.0 + number("epsilon_high", epsilon_high, least=0)
    signs = None
    if advantages is not None:
        signs = np.sign(floats("advantages", advantages, shape=rows.shape))
    tokens = _statistics(difference[counts], low, high, None if signs is None else np.repeat(signs, counts.sum(axis=1)))
    totals = _row_sums(difference, lost)[0][rows]
    sequences = _statistics(totals, low, high, None if signs is None else signs[rows])
    extremes = {"min_sequence_ratio": float(_exp(totals.min())), "max_sequence_ratio": float(_exp(totals.max()))}
    return tokens | {f"seq_sum_{name}": value for name, value in sequences.items()} | extremes


def _statistics(difference: Floats, low: float, high: float, signs: Floats | None) -> dict[str, float]:
    ratio = _exp(difference)
    shifted = np.exp(difference - difference.max())  # the shares of the ESS have no scale, so it cannot overflow
    size = np.abs(difference)
    with np.errstate(over="ignore"):
        values = {
            "mean": np.mean(ratio),
            "max_abs": np.max(size),
            "p99_abs": np.quantile(size, 0.99, method="linear"),
            "k3": np.mean(k3(difference)),
            "chi2": np.mean(np.expm1(2.0 * difference)),
            "ess_per_n": np.sum(shifted) ** 2 / (shifted.size * np.sum(shifted**2)),
            "mult_err": np.mean(np.exp(size)),
            "outside_low": np.mean(ratio < low),
            "outside_high": np.mean(ratio > high),
        }
    if signs is not None:
        values["clipped_low"] = np.mean((ratio < low) & (signs < 0))
        values["clipped_high"] = np.mean((ratio > high) & (signs > 0))
    return {name: float(value) for name, value in values.items()}


def _difference(policy: npt.ArrayLike, old: npt.ArrayLike, mask: npt.ArrayLike) -> tuple[Floats, Floats, Bools]:
    """Policy - old in float64 and what its rounding lost, both 0 where masked."""
    ours = floats("policy", policy, ndim=2)
    theirs = floats("old", old, shape=ours.shape)
    counts = mask_of(mask, ours.shape)
    difference, lost = two_difference(np.where(counts, ours, 0.0), np.where(counts, theirs, 0.0))
    return difference, finite_or_zero(lost), counts


def _row_sums(difference: Floats, lost: Floats) -> tuple[Floats, Floats]:
    """Per row the correctly rounded sum of the exact differences, and what that rounding lost."""
    sums = np.array([two_sum(row) for row in np.concatenate([difference, lost], axis=1)]).reshape(-1, 2)
    return sums[:, 0], sums[:, 1]


def _exp(difference: Floats, lost: Floats | float = 0.0) -> Floats:
    """The exponential of difference + lost, where lost is within an ulp of difference."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(difference) * (1.0 + lost))
