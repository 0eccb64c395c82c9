"""The partial sums of a sum, in the worst of the orders that libraries use."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
LANES = (8, 32)  # accumulators of NumPy's and of vectorised sums


def worst_sums(values: Floats, axis: int | None, u: float) -> tuple[Floats, Floats]:
    """Return each sum, and its largest Σ|partial sums| over the usual orders of addition."""
    if axis is None:
        if values.ndim <= 1:
            return _along(values.reshape(-1), u)
        rows = values.reshape(-1, values.shape[-1])
        value, flat = _along(rows.reshape(-1), u)
        orders = [flat]
        for table in (rows, rows.T):
            parts, inner = _along(table, u)
            _, outer = _along(parts, u)
            orders.append(inner.sum() + outer)
        return value, np.max(orders, axis=0)
    return _along(np.moveaxis(values, axis, -1), u)


def _along(values: Floats, u: float) -> tuple[Floats, Floats]:
    """Return the sums over the last axis and the largest Σ|partial sums| of each."""
    with np.errstate(all="ignore"):
        total = values.sum(axis=-1)
        if values.shape[-1] < 2:
            return total, np.zeros(total.shape)
        largest = np.maximum(_partial(values, u), _partial(values[..., ::-1], u))
        for lanes in LANES:
            if values.shape[-1] > lanes:
                padded = np.zeros((*values.shape[:-1], -(-values.shape[-1] // lanes) * lanes))
                padded[..., : values.shape[-1]] = values
                strided = np.swapaxes(padded.reshape(*values.shape[:-1], -1, lanes), -1, -2)
                size = _partial(strided, u).sum(axis=-1) + _partial(strided.sum(axis=-1), u)
                largest = np.maximum(largest, size)
        return total, largest


def _partial(values: Floats, u: float) -> Floats:
    """Return Σ|partial sums| in this order: the first term is exact, and an exact 0 adds no rounding.

    An addition errs by at most its term, because the previous partial sum is itself a candidate for the rounded result.
    So a term below u times the partial sum counts with its own size.
    """
    sums = np.minimum(np.abs(values.cumsum(axis=-1)), np.abs(values) / u)
    terms = values != 0.0
    if terms[..., 0].all():  # every term but the first rounds
        sums[..., 0] = 0.0
    else:
        sums = np.where(terms.cumsum(axis=-1) > 1, sums, 0.0)
    return np.asarray(sums.sum(axis=-1))
