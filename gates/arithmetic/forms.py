"""Combine several algebraic forms of one program."""

from __future__ import annotations

import numpy as np

from gates.arithmetic.number import Number

MOST = 1e-2  # largest limit of an accurate element, relative to its value


def accurate(form: Number) -> Number:
    """Return the form, void where its limit exceeds `MOST` of the value, so that `widest` takes other forms there.

    An exact 0 stays. For a form that cancels, used along with one that does not.
    """
    limit = form.limit()
    cancelled = limit > MOST * abs(form.value)
    return Number(form.value, form.dtype, form.error, form.void | cancelled)


def merged(first: Number, *others: Number) -> Number:
    """Return the first form with the largest bound of all; its gradient is that of the first."""
    with np.errstate(invalid="ignore"):
        errors = [x.error + abs(x.value - first.value) for x in (first, *others)]
    widened = first.plus_relative(0.0)
    widened.error = np.max(errors, axis=0)
    widened.void = np.any([x.void for x in (first, *others)], axis=0)
    return widened
