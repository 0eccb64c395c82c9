"""What an error of a ratio statistic is measured in, and which shares a branch point leaves open.

Source: docs/definitions.md, "Accuracy" and "Branch points".
"""

from collections.abc import Mapping

import numpy as np

from gates_reference.oracle.definitions import exact
from gates_reference.oracle.definitions import statistics as definition
from gates_reference.oracle.definitions.exact import Exact
from gates_reference.oracle.errors.branches import near_bound

SHARES = ("outside_low", "outside_high", "clipped_low", "clipped_high")


def scales(d: Exact, values: Mapping[str, float]) -> dict[str, float]:
    """The scale S by name: |value| of sums of one sign and of single numbers, and 0, "exact", for shares.

    The mean of |terms| for `chi2`; four times the value for `ess_per_n`, in which each ratio stands four times; for the
    quantile its value and n times the gap in which it lies, as its position 0.99 (n - 1) may be rounded.
    """
    _, gap, _ = definition.quantile_parts(np.abs(d.value))
    return dict(values) | {
        "p99_abs": values["p99_abs"] + d.value.size * gap,
        "chi2": definition.mean(np.abs(definition.chi2_terms(d))),
        "ess_per_n": 4.0 * values["ess_per_n"],
        **{name: 0.0 for name in SHARES if name in values},
    }


def near_shares(d: Exact, bounds: tuple[float, float], dtype: np.dtype, *, clipped: bool) -> dict[str, float]:
    """The share of ratios within 16 ulp of each bound, which may be on either side of it."""
    r = exact.exp(d)
    low, high = (float(np.mean(near_bound(r, (bound,), dtype))) for bound in bounds)
    return dict(zip(SHARES if clipped else SHARES[:2], (low, high, low, high), strict=False))
