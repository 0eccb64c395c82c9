"""What is made of several forms of one program."""

from __future__ import annotations

import numpy as np

from gates.arithmetic.number import Number

MOST = 1e-2  # of the value


def accurate(form: Number) -> Number:
    """Return the form, void where its limit exceeds `MOST` of the value: `widest` then takes other forms there.

    An exact 0 stays. For a form that only some authors use, beside one that keeps its digits.
    """
    limit = form.limit()
    cancelled = limit > MOST * abs(form.value)
    return Number(form.value, form.dtype, form.error, form.void | cancelled)


def merged(first: Number, *others: Number) -> Number:
    """Return one number with the largest bound of several forms; it is differentiated like the first."""
    with np.errstate(invalid="ignore"):
        errors = [x.error + abs(x.value - first.value) for x in (first, *others)]
    found = first.plus_relative(0.0)
    found.error = np.max(errors, axis=0)
    found.void = np.any([x.void for x in (first, *others)], axis=0)
    return found
