"""Parse the handshake of a subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gates.model import AXES
from gates.provided import Provided


@dataclass(frozen=True, slots=True)
class Hello:
    """The handshake of a subject."""

    provides: Mapping[str, Provided]
    documented: Mapping[str, str]
    versions: Mapping[str, str]
    locations: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # of each op: file and line of its function


def parsed(answer: Mapping[str, Any]) -> Hello:
    """Return the handshake in the first answer of a subject.

    Raises:
        TypeError: a table has a wrong type; likewise KeyError, ValueError and AttributeError.
    """
    arguments = answer.get("arguments", {})
    provides = {
        op: Provided(
            op,
            {name: tuple(values) for name, values in conventions.items()},
            _implied(conventions, arguments.get(op)),
            _named(arguments.get(op, ())),
        )
        for op, conventions in answer["provides"].items()
    }
    documented, versions = answer.get("documented", {}), answer.get("versions", {})
    for name, texts in (("documented", documented), ("versions", versions)):
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError(f"`{name}` must hold text")
    return Hello(provides, documented, versions, dict(_located(answer.get("locations", {}))))


def _located(locations: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the ops whose file and line are known."""
    for op, location in locations.items():
        if location is not None:
            file, line = location
            if not isinstance(file, str) or not isinstance(line, int):
                raise TypeError(f"`locations` must hold a file and a line of {op}")
            yield op, (file, max(1, line))


def _named(arguments: list[str] | tuple[()] | None) -> tuple[str, ...] | None:
    return None if arguments is None else tuple(arguments)


def _implied(conventions: Mapping[str, Any], arguments: list[str] | None) -> tuple[str, ...]:
    """Return the conventions of which one choice is declared and for which the function has no argument."""
    single = [name for name, choices in conventions.items() if choices and sum(c is not None for c in choices) <= 1]
    if not arguments:  # it takes any, or nothing is known of them
        return () if arguments is None else tuple(axis for axis in AXES if axis in single)
    return tuple(name for name in single if name not in arguments)
