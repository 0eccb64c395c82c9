"""What a step logs about its importance ratios, per token and per sequence."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions import statistics as definition
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.errors import statistics as errors
from gates_reference.oracle.errors.statistics import SHARES
from gates_reference.oracle.inputs import Floats, floats, number
from gates_reference.oracle.ratio import log_ratio

__all__ = ["SHARES", "Statistics", "measured", "ratio_statistics"]


class Statistics(NamedTuple):
    """Numbers by name, and by the same names what an error of each is measured in and what a bound leaves open.

    Attributes:
        values: as `ratio_statistics` returns them.
        scales: S of the accuracy rule, 0 where the number must be exact.
        near: for the shares, the share of ratios within 16 ulp of the bound, which may be on either side; else 0.
    """

    values: dict[str, float]
    scales: dict[str, float]
    near: dict[str, float]


def ratio_statistics(
    policy: npt.ArrayLike,
    behaviour: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
    *,
    epsilon_low: float,
    epsilon_high: float,
    advantages: npt.ArrayLike | None,
    lengths: npt.ArrayLike | None = None,
) -> dict[str, float]:
    """Eleven numbers say how far D = policy - behaviour has moved per token, and eleven per sequence, and two more.

    Only masked-in tokens count, and only sequences that have one. Samples come from the behaviour policy.

    Args:
        policy: (B, T), or (N,) with `lengths`: log-probs in nats.
        behaviour: log-probs of the policy that sampled, of the same shape.
        mask: (B, T), 1 on completion tokens; or
        epsilon_low: the lower clip bound is 1 - epsilon_low.
        epsilon_high: the upper clip bound is 1 + epsilon_high.
        advantages: (B,), whose sign decides what a clip touches; None leaves the `clipped_*` shares out.
        lengths: (B,), valid prefixes, or the lengths of a flat array's sequences.

    Returns:
        With r = exp(D): `mean` r, `max_abs` |D|, `p99_abs` |D| (linear-interpolation quantile), `k3` = mean k3(D),
        `chi2` = mean expm1(2 D), `ess_per_n` = (sum r)**2 / (n sum r**2), `mult_err` = mean exp|D|,
        `outside_low` and `outside_high` = shares with r below or above its bound, `clipped_low` and `clipped_high`
        = those with a negative or positive advantage; the same with the prefix `seq_sum_` for D summed over each
        sequence; `min_sequence_ratio` and `max_sequence_ratio` of the latter.

    Raises:
        ValueError: shapes that differ, or no token at all.

    Source: docs/definitions.md, "Ratio statistics"; ESS: Kong (1992); k3: Schulman (2020).
    """
    return measured(
        policy,
        behaviour,
        mask,
        epsilon_low=epsilon_low,
        epsilon_high=epsilon_high,
        advantages=advantages,
        lengths=lengths,
    ).values


def measured(
    policy: npt.ArrayLike,
    behaviour: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
    *,
    epsilon_low: float,
    epsilon_high: float,
    advantages: npt.ArrayLike | None,
    lengths: npt.ArrayLike | None = None,
) -> Statistics:
    """The statistics of `ratio_statistics`, and what an error of each is measured in.

    Args:
        policy: as in `ratio_statistics`.
        behaviour: as in `ratio_statistics`.
        mask: as in `ratio_statistics`.
        epsilon_low: as in `ratio_statistics`.
        epsilon_high: as in `ratio_statistics`.
        advantages: as in `ratio_statistics`.
        lengths: as in `ratio_statistics`.

    Returns:
        `Statistics`. S is |value| of sums of one sign and of single numbers, the mean of |terms| for `chi2`, four
        times the value for `ess_per_n` (each ratio stands in it four times), and for the quantile its value and
        n times the gap in which it lies, as its position 0.99 (n - 1) may be rounded.

    Raises:
        ValueError: as `ratio_statistics`.

    Source: docs/definitions.md, "Accuracy".
    """
    dtype = np.dtype("float32" if np.asarray(policy).dtype == np.float32 else "float64")
    moved, rows = log_ratio(policy, behaviour, mask, lengths)
    counts, some = rows.counts, rows.lengths > 0
    if not np.any(some):
        raise ValueError(f"`mask` of shape {counts.shape} holds no token, must hold at least one")
    bounds = 1.0 - number("epsilon_low", epsilon_low, least=0), 1.0 + number("epsilon_high", epsilon_high, least=0)
    signs = None if advantages is None else np.sign(floats("advantages", advantages, shape=some.shape))
    of_tokens = None if signs is None else np.repeat(signs, rows.lengths)
    sums = exact.row_sums(moved).where(some)
    found = {
        "": _moments(moved.where(counts), bounds, of_tokens, dtype),
        "seq_sum_": _moments(sums, bounds, None if signs is None else signs[some], dtype),
    }
    merged = (
        {f"{prefix}{name}": number for prefix, part in found.items() for name, number in part[index].items()}
        for index in range(3)
    )
    values, scales, near = merged
    ratios = exact.exp(sums)
    extremes = {"min_sequence_ratio": float(np.min(ratios)), "max_sequence_ratio": float(np.max(ratios))}
    return Statistics(values | extremes, scales | extremes, near)


def _moments(log_ratio: Exact, bounds: tuple[float, float], signs: Floats | None, dtype: np.dtype) -> Statistics:
    values = definition.moments(log_ratio) | definition.shares(log_ratio, bounds, signs)
    near = errors.near_shares(log_ratio, bounds, dtype, clipped=signs is not None)
    return Statistics(values, errors.scales(log_ratio, values), near)
