"""The types of a program: a forward definition, its edits, and the data of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value
from gates.arithmetic.narrow import working
from gates.arithmetic.number import Number, number
from gates.model import Array

Choices = Mapping[str, Any]
Inputs = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a definition, such as a mask shifted by one position.

    Attributes:
        words: what the edited definition computes, as text after "computes:".
        changes: the choices that it makes instead of those asked.
        convention: whether a library makes this choice on purpose; conventions are named first.
        asked: what is asked instead, as text after "asked:"; empty if `words` says it.
        alone: whether it is only tried without a second edit, as one of many sizes of a constant.
    """

    words: str
    changes: Choices
    convention: bool = False
    asked: str = ""
    alone: bool = False

    @property
    def sentence(self) -> str:
        """The words with what was asked."""
        return f"{self.words} (asked: {self.asked})" if self.asked else self.words


@dataclass(frozen=True, slots=True)
class Data:
    """The inputs of one call, as float64 arrays, or as numbers with a bound and a gradient.

    Attributes:
        parts: terms of an output, kept for programs that are computed with many choices; None: nothing is kept.
    """

    inputs: Inputs
    bounded: bool
    parts: dict[Any, Value] | None = None

    def __getitem__(self, name: str) -> Any:
        return self.inputs[name]

    def get(self, name: str) -> Any:
        """Return an input unchanged, or None."""
        return self.inputs.get(name)

    def lift(self, values: Any, dtype: str | None = None) -> Value:
        """Return an array to compute with: numbers with bounds in the data's dtype, or plain float64."""
        array = np.asarray(values)
        return number(array, dtype) if self.bounded else array.astype(np.float64)

    def part(self, key: Any, compute: Callable[[], Value]) -> Value:
        """Return a term of an output, computed once for each key; the key holds every choice on which it depends."""
        if self.parts is None:
            return compute()
        if key not in self.parts:
            self.parts[key] = compute()
        return self.parts[key]

    def scalar(self, value: float, dtype: str) -> Value:
        """Return a constant such as ε, which a program may keep in the dtype or in a wider one."""
        if not self.bounded:
            return float(value)
        return Number(float(value), dtype, abs(float(np.asarray(value, working(dtype))) - float(value)))


@dataclass(frozen=True, slots=True)
class Program:
    """The forward definition of an op, with its edits.

    Attributes:
        op: the op's name.
        asked: returns the choices that the keywords of a call ask for.
        compute: returns outputs by name, given data, choices and the variable of the gradient, if any.
        edits: yields the edits that differ from these choices.
        inputs: yields at least eight designed calls with the settings and layout of an example: batches of several shapes
            whose values tell the edits apart.
        outputs: the outputs that are compared.
        optional: the outputs that a call may omit, such as an entropy that was not requested.
        variable: the input with respect to which the output `loss` is differentiated; empty: no gradient.
        places: yields named sets of elements of one output, to locate a difference when no candidate matches.
        fitted: yields edits whose constants are solved for from the subject's outputs.
        rare: yields the edits that only rare input shows, such as a clamp of log-ratios at 20 nats.
        presets: yields the published definitions with their library settings, as edits.
        pairs: whether two edits at once are tried; False where each costs a gradient.
        examples: yields the calls that `gates identify` tries, given a case's call, such as one with every constant; the
            first that the subject answers is used.
        reads: returns the compared outputs, given a call and the subject's outputs, where these are compared in another form.
        declares: of each choice that a subject may declare, the convention and the value that declare each value of it.
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
    rare: Callable[[Choices], Iterable[Edit]] = lambda choices: ()  # noqa: ARG005
    presets: Callable[[Choices], Iterable[Edit]] = lambda choices: ()  # noqa: ARG005
    pairs: bool = True
    examples: Callable[[Inputs], Iterable[Inputs]] = lambda inputs: (inputs,)
    reads: Callable[[Inputs, Mapping[str, Any]], Mapping[str, Any]] = lambda inputs, outputs: outputs  # noqa: ARG005
    declares: Mapping[str, Mapping[Any, tuple[str, Any]]] = field(default_factory=dict, hash=False)

    def declared(self, changes: Choices) -> dict[str, Any]:
        """Return the conventions that declare these choices, with their values; empty if no declaration says one."""
        pairs = [self.declares.get(name, {}).get(choice) for name, choice in changes.items()]
        return {} if None in pairs else dict(pair for pair in pairs if pair is not None)


@dataclass(frozen=True, slots=True)
class Sample:
    """One designed call and the subject's outputs as float64 arrays."""

    inputs: Inputs
    got: Mapping[str, Array]
