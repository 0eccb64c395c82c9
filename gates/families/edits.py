"""What the edits of the families share: values of a choice by their words, other numbers, conventions before mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gates.families.program import Choices, Edit


def conventions_first(edits: Callable[[Choices], Iterable[Edit]]) -> Callable[[Choices], list[Edit]]:
    """Return the edits of a function in two parts, conventions and mistakes, each in its order."""
    return lambda asked: sorted(edits(asked), key=lambda edit: not edit.convention)


def others(
    choice: str, kinds: Mapping[str, tuple[str, bool]], asked: Choices, words: str = "{}", without: Iterable[str] = ()
) -> Iterator[Edit]:
    """Yield an edit for each value of a choice that is not asked.

    Args:
        choice: the name of the choice.
        kinds: what each value computes, and whether some library has it on purpose.
        asked: the choices of a call.
        words: the words of an edit, in which {} stands for what its value computes.
        without: values that have no edit.
    """
    for name, (computed, known) in kinds.items():
        if name != asked[choice] and name not in without:
            yield Edit(words.format(computed), {choice: name}, known, kinds[asked[choice]][0])


def mistakes(choice: str, kinds: Mapping[str, str], words: str = "{}", without: Iterable[str] = ()) -> Iterator[Edit]:
    """Yield an edit for each value of a choice that is only ever a mistake."""
    yield from (Edit(words.format(kinds[name]), {choice: name}) for name in kinds if name not in without)


def numbers(
    symbol: str, choice: str, sizes: Sequence[float], asked: Choices, *, convention: bool = False
) -> Iterator[Edit]:
    """Yield an edit for each of some usual sizes of a number, if there is one, that is not asked."""
    value = asked[choice]
    if value is not None:
        for x in sizes:
            if x != value:
                yield Edit(f"{symbol} {x:g}", {choice: x}, convention, f"{value:g}", alone=True)


def declarations(convention: str, values: Iterable[Any]) -> dict[Any, tuple[str, Any]]:
    """Return the convention and the value by which each choice is declared."""
    return {value: (convention, value) for value in values}
