"""Find the largest difference of two arrays, in units of a scale, and its index."""

from __future__ import annotations

import numpy as np

from gates.model import Array, Wire


def worst(got: Wire, want: Wire, scale: Wire = 1.0) -> tuple[float, str]:
    """Return the largest |got − want| / scale and its location, such as `at [3, 7]: got 1, want 2`.

    Equal infinities count as 0, and so does NaN where NaN is expected. An unexpected NaN counts as NaN, which satisfies no
    relation; any other value that is not finite on one side counts as inf. Where the scale is 0 both must be equal.

    Raises:
        ValueError: if the shapes differ, or there is nothing to compare.
    """
    a, b = (np.asarray(x, dtype=np.float64) for x in (got, want))
    if a.shape != b.shape:
        raise ValueError(f"shape {a.shape} cannot be compared with shape {b.shape}")
    if a.size == 0:
        raise ValueError("there is nothing to compare")
    error = relative_error(a, b, np.broadcast_to(np.asarray(scale, dtype=np.float64), a.shape))
    flat = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
    prefix = f"at {list(index)}: " if index else ""
    digits = 9 if f"{a[index]:.9g}" != f"{b[index]:.9g}" or a[index] == b[index] else 17
    return float(error[index]), f"{prefix}got {a[index]:.{digits}g}, want {b[index]:.{digits}g}"


def worst_claimed(got: Wire, want: Wire, limits: Wire) -> tuple[float, str, int]:
    """Return what `worst` does, in units of textbook limits, and the number of elements compared.

    Elements with an infinite or NaN limit are left out.
    """
    a, b = (np.asarray(x, dtype=np.float64) for x in (got, want))
    limit = np.broadcast_to(np.asarray(limits, dtype=np.float64), a.shape)
    claimed = np.isfinite(limit)
    if not claimed.any():
        return 0.0, "no element has a textbook limit", 0
    observed, location = worst(np.where(claimed, a, 0.0), np.where(claimed, b, 0.0), np.where(claimed, limit, 1.0))
    return observed, location, int(claimed.sum())


def relative_error(got: Array, want: Array, scale: Array) -> Array:
    """Return |got − want| / scale elementwise, with the rules of `worst` for infinities and NaN."""
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(got - want) / scale
    error = np.where(np.isnan(error) | ~np.isfinite(want), np.inf, error)
    error = np.where(np.isnan(got) & ~np.isnan(want), np.nan, error)
    return np.where(same, 0.0, error)
