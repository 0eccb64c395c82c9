"""Textbook limits of a program: what its usual forms may be off by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gates.diagnosis.arithmetic import Value
from gates.diagnosis.program import Choices, Data, Inputs
from reference.textbook.number import Floats, widest


def limits(
    compute: Callable[[Data, Choices, Value], Mapping[str, Value]],
    asked: Callable[[Inputs], Choices],
    forms: Callable[[Choices], Iterable[Choices]],
) -> Callable[..., dict[str, Floats]]:
    """Return the function from an op's keywords to the limits of its outputs: twice the widest bound of all forms.

    Args:
        compute: the program; it takes no gradient.
        asked: the choices that the keywords ask for.
        forms: choices that give the same numbers with other roundings, for those that are asked.
    """

    def of(**inputs: Any) -> dict[str, Floats]:
        data, choices = Data(inputs, bounded=True), asked(inputs)
        found = [compute(data, {**choices, **form}, None) for form in forms(choices)]
        return {name: widest(one[name] for one in found) for name in found[0]}

    return of
