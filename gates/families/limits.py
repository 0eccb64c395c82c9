"""Textbook limits: the widest bound on the rounding error of a program over the forms in which it is usually written."""

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
    """The inputs of a call as numbers with bounds, for a program that holds its constants in the data's dtype.

    Attributes:
        slack: roundings of a constant that the dtype cannot hold, where some programs hold it wider.
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
    """Return the outputs of a call as numbers with bounds, once for each form: choices that change roundings only."""
    data, asked = Rounded(inputs, slack=slack), program.asked(inputs)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return [program.compute(data, {**asked, **form}, None) for form in forms]


def limits(program: Program, inputs: Inputs, forms: Iterable[Choices], *, slack: float = 0.0) -> dict[str, Floats]:
    """Return how far a careful program in the data's dtype may be off, by output; inf where the dtype may overflow."""
    found = evaluated(program, inputs, forms, slack=slack)
    return {name: widest([form[name] for form in found]) for name in found[0]}
