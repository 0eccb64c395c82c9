"""Textbook limits: the widest rounding-error bound of a program over its usual algebraic forms."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gates.arithmetic.functions import Value
from gates.arithmetic.number import Floats, Number, constant, widest
from gates.families.program import Choices, Data, Inputs, Program


@dataclass(frozen=True, slots=True)
class Rounded(Data):
    """The inputs of a call as numbers with bounds, and constants rounded to the data's dtype.

    Attributes:
        slack: roundings added to an inexact constant, because some programs keep it in a wider dtype.
    """

    bounded: bool = True
    slack: float = 0.0

    def scalar(self, value: float, dtype: str) -> Number:
        """Return a constant, rounded once."""
        rounded = constant(value, dtype)
        return rounded if float(rounded.value) == value else rounded.plus_relative(self.slack)


def evaluated(
    program: Program, inputs: Inputs, forms: Iterable[Choices], *, slack: float = 0.0
) -> list[Mapping[str, Value]]:
    """Return the outputs of a call as numbers with bounds, for each form: choices that change only roundings."""
    data, asked = Rounded(inputs, slack=slack), program.asked(inputs)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return [program.compute(data, {**asked, **form}, None) for form in forms]


def limits(program: Program, inputs: Inputs, forms: Iterable[Choices], *, slack: float = 0.0) -> dict[str, Floats]:
    """Return by output the limits of a careful program in the data's dtype; inf where the dtype may overflow."""
    outputs = evaluated(program, inputs, forms, slack=slack)
    return {name: widest([form[name] for form in outputs]) for name in outputs[0]}
