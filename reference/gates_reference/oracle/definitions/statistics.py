"""What a step logs about its importance ratios r = exp(D), D = policy - behaviour, of n tokens or of n sequences."""

import numpy as np

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions.exact import Exact, total
from gates_reference.oracle.definitions.kl import k3
from gates_reference.oracle.inputs import Floats

TAIL = (99, 100)  # p99, as a ratio of whole numbers: its position among n values is exact


def moments(d: Exact) -> dict[str, float]:
    """The means of r, k3(D), expm1(2 D) and exp|D|, the largest and the 99th percentile of |D|, and the ESS over n.

    k3: Schulman (2020); ESS: Kong (1992).
    """
    size = absolute(d)
    return {
        "mean": mean(exact.exp(d)),
        "max_abs": float(np.max(size.value)),
        "p99_abs": quantile(size.value),
        "k3": mean(k3(d)),
        "chi2": mean(chi2_terms(d)),
        "ess_per_n": effective_share(d),
        "mult_err": mean(multiplicative_errors(size)),
    }


def mean(terms: Floats) -> float:
    """The mean, sum_t x_t / n."""
    return total(terms) / terms.size


def absolute(d: Exact) -> Exact:
    """The absolute value |D|."""
    return Exact(np.abs(d.value), np.sign(d.value) * d.rest)


def multiplicative_errors(size: Exact) -> Floats:
    """The terms exp|D| = max(r, 1 / r); by the rest of |D| each moves by exp|D| rest."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.exp(size.value) + exact.first_order(np.exp(size.value) * size.rest))


def chi2_terms(d: Exact) -> Floats:
    """The terms r**2 - 1 = exp(2 D) - 1, whose mean estimates the chi-squared divergence."""
    return exact.expm1(Exact(2.0 * d.value, 2.0 * d.rest))


def effective_share(d: Exact) -> float:
    """The effective sample size over n, ESS / n = (sum r)**2 / (n sum r**2), the same for D - max D, whose exponentials do not overflow. Kong (1992)."""
    r = exact.exp(Exact(d.value - np.max(d.value), d.rest))
    return total(r) ** 2 / (r.size * total(r**2))


def quantile(values: Floats) -> float:
    """The value at position 0.99 (n - 1) of the sorted ones, between two of them by linear interpolation."""
    below, gap, hundredths = quantile_parts(values)
    return below + gap * hundredths / TAIL[1]


def quantile_parts(values: Floats) -> tuple[float, float, int]:
    """The value below the quantile's position, the gap to the one above, and how many hundredths of it lie below."""
    ordered = np.sort(values)
    below, over = divmod(TAIL[0] * (values.size - 1), TAIL[1])
    gap = float(ordered[min(below + 1, values.size - 1)] - ordered[below]) if over else 0.0
    return float(ordered[below]), gap, over


def shares(d: Exact, bounds: tuple[float, float], signs: Floats | None) -> dict[str, float]:
    """The shares of r outside [low, high], and of those that a clip stops: below with A < 0, above with A > 0."""
    r, (low, high) = exact.exp(d), bounds
    found = {"outside_low": float(np.mean(r < low)), "outside_high": float(np.mean(r > high))}
    if signs is not None:
        found["clipped_low"] = float(np.mean((r < low) & (signs < 0)))
        found["clipped_high"] = float(np.mean((r > high) & (signs > 0)))
    return found
