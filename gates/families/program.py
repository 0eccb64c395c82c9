"""The types of a diagnosis: a forward definition, the edits that change it, and what one call of it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value
from gates.arithmetic.number import Number, number
from gates.model import Array

Choices = Mapping[str, Any]
Inputs = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a definition, such as a mask that is shifted by one position.

    Attributes:
        words: what the edited definition computes, to be read after "computes:".
        changes: the choices that it makes instead of those that are asked.
        convention: whether some library makes this choice on purpose; such edits are named first.
        asked: what is asked instead, in words that follow "asked:"; empty where the words say it.
    """

    words: str
    changes: Choices
    convention: bool = False
    asked: str = ""

    @property
    def sentence(self) -> str:
        """The words, and what was asked."""
        return f"{self.words} (asked: {self.asked})" if self.asked else self.words


@dataclass(frozen=True, slots=True)
class Data:
    """The inputs of one call, as float64 arrays, or as numbers that carry a bound and a gradient."""

    inputs: Inputs
    bounded: bool

    def __getitem__(self, name: str) -> Any:
        return self.inputs[name]

    def get(self, name: str) -> Any:
        """Return an input as it was given, or None."""
        return self.inputs.get(name)

    def lift(self, values: Any, dtype: str | None = None) -> Value:
        """Return an array of the data's dtype to compute with."""
        array = np.asarray(values)
        return number(array, dtype) if self.bounded else array.astype(np.float64)

    def scalar(self, value: float, dtype: str) -> Value:
        """Return a constant such as ε, which a program may hold in the dtype or wider."""
        if not self.bounded:
            return float(value)
        return Number(float(value), dtype, abs(float(np.asarray(value, dtype)) - float(value)))


@dataclass(frozen=True, slots=True)
class Program:
    """The forward definition of an op, with its edits.

    Attributes:
        op: the op's name.
        asked: the choices that the keywords of a call ask for.
        compute: outputs by name from the data, the choices, and the variable of the gradient if there is one.
        edits: the edits that change something in these choices.
        inputs: at least eight designed calls with the settings and the layout of an example: batches of several shapes
            whose arrays tell the edits from each other.
        outputs: the outputs that are compared.
        optional: those of them that a call may leave out, such as an entropy that is not asked for.
        variable: the input by which `gradient` is the derivative of the output `loss`; empty: there is none.
        places: named sets of elements of one output, to say where a difference lives when nothing matches.
        fitted: edits whose constants are solved for from what the subject returned.
        presets: definitions by name, with the libraries' settings that choose them; each is an edit of any choices.
        pairs: whether two edits at once are tried; not where each costs a gradient.
        examples: what `gates identify` calls with, from a case's call, such as one that has every constant; the first that
            the subject answers is taken.
    """

    op: str
    asked: Callable[[Inputs], Choices]
    compute: Callable[[Data, Choices, Value], Mapping[str, Value]]
    edits: Callable[[Choices], Iterable[Edit]]
    inputs: Callable[[Inputs, np.random.Generator], Iterator[Inputs]]
    outputs: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    variable: str = ""
    places: Callable[[Inputs, str], Iterable[tuple[str, Array]]] = lambda inputs, output: ()  # noqa: ARG005
    fitted: Callable[[Choices, Sequence[Sample]], Iterable[Edit]] = lambda choices, samples: ()  # noqa: ARG005
    presets: Callable[[Choices], Iterable[Edit]] = lambda choices: ()  # noqa: ARG005
    pairs: bool = True
    examples: Callable[[Inputs], Iterable[Inputs]] = lambda inputs: (inputs,)


@dataclass(frozen=True, slots=True)
class Sample:
    """One designed call, and what the subject returned for it: float64 arrays by output."""

    inputs: Inputs
    got: Mapping[str, Array]
