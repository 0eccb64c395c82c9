"""Generalised advantage estimation over the tokens of a row.

Source: J. Schulman et al. (arXiv 1506.02438), eq. 16; docs/definitions.md, "GAE".
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.inputs import Floats, finite, floats, number
from gates_reference.oracle.rows import rows_of

Exact = list[Fraction]


class Rollout(NamedTuple):
    """What the recurrence reads, as it came."""

    rewards: npt.ArrayLike
    values: npt.ArrayLike
    bootstrap: npt.ArrayLike | None
    terminal: npt.ArrayLike | None


def gae(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    *,
    gamma: float,
    lam: float,
    bootstrap: npt.ArrayLike | None = None,
    terminal: npt.ArrayLike | None = None,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
) -> Floats:
    """Advantage estimates of the tokens of each row; slots without a token are skipped and give 0.

    Args:
        rewards: (B, T), or (N,) with lengths: the reward of each token, finite.
        values: of the same shape, the critic's estimate before each token.
        gamma: the discount, in [0, 1].
        lam: the decay of the trace, in [0, 1].
        bootstrap: (B,), the estimate after the last token of each row; None is 0.
        terminal: of the shape of the rewards, whether the episode ends with the token; None is nowhere.
        mask: (B, T), 1 on tokens; or
        lengths: (B,), the valid prefix of each row.

    Returns:
        float64 of the shape of the rewards.

    Raises:
        ValueError: shapes that do not fit, numbers that are not finite, gamma or lam outside [0, 1].
    """
    return _each_row(-1, Rollout(rewards, values, bootstrap, terminal), gamma, lam, mask, lengths)


def gae_scale(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    *,
    gamma: float,
    lam: float,
    bootstrap: npt.ArrayLike | None = None,
    terminal: npt.ArrayLike | None = None,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
) -> Floats:
    """The error of an estimate is measured in units of the same recurrence over absolute values.

    Arguments, shape and errors are those of `gae`.

    Source: docs/definitions.md, "GAE".
    """
    after = None if bootstrap is None else np.abs(bootstrap)
    given = Rollout(np.abs(rewards), np.abs(values), after, terminal)
    return _each_row(1, given, gamma, lam, mask, lengths)


def estimates(r: Exact, v: Exact, ends: list[bool], last: Fraction, gamma: Fraction, lam: Fraction, sign: int) -> Exact:
    """A_t = delta_t + gamma lambda A_{t+1} with delta_t = r_t + gamma V_{t+1} - V_t, in exact rational numbers.

    Schulman et al. (arXiv 1506.02438), eq. 16. A terminal token reads nothing of what follows. `sign` is that of V_t.
    """
    found, advantage, following = [], Fraction(0), last
    for t in reversed(range(len(r))):
        live = 0 if ends[t] else 1
        delta = r[t] + gamma * live * following + sign * v[t]
        advantage, following = delta + gamma * lam * live * advantage, v[t]
        found.append(advantage)
    return found[::-1]


def _each_row(
    sign: int,
    given: Rollout,
    gamma: float,
    lam: float,
    mask: npt.ArrayLike | None,
    lengths: npt.ArrayLike | None,
) -> Floats:
    rows = rows_of("rewards", np.shape(given.rewards), mask=mask, lengths=lengths)
    rewards = finite("rewards", rows.grid("rewards", given.rewards))
    values = finite("values", rows.grid("values", given.values))
    ends = rows.grid("terminal", np.zeros(rows.shape) if given.terminal is None else np.asarray(given.terminal, float))
    count = len(rows.counts)
    last = np.zeros(count) if given.bootstrap is None else finite("bootstrap", floats("bootstrap", given.bootstrap))
    discount, decay = (Fraction(number(name, x, least=0.0, most=1.0)) for name, x in (("gamma", gamma), ("lam", lam)))
    result = np.zeros(rows.counts.shape)
    for row, tokens in enumerate(rows.counts):
        r, v = ([Fraction(x) for x in array[row, tokens]] for array in (rewards, values))
        found = estimates(r, v, list(ends[row, tokens] != 0), Fraction(last[row]), discount, decay, sign)
        result[row, tokens] = [float(x) for x in found]
    return rows.back(result)
