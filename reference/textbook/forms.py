"""Which forms of a program count where one of them loses its digits."""

from __future__ import annotations

from reference.textbook.number import Number

MOST = 1e-2  # of the value


def accurate(form: Number) -> Number:
    """Return the form, void where its limit exceeds `MOST` of the value: `widest` then takes other forms there.

    An exact 0 stays. For a form that only some authors use, beside one that keeps its digits.
    """
    limit = form.limit()
    cancelled = limit > MOST * abs(form.value)
    return Number(form.value, form.dtype, form.error, form.void | cancelled)
