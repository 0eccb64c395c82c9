"""Inputs that hold inputs, such as the two calls of a law, as one flat table: `left.policy`, `right.policy`.

Lists stay what they are: only those of arrays could be told apart, and no gate has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DOT = "."


def flat(inputs: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every value that is no dictionary under the path that leads to it; an empty dictionary stays one."""
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{name}{DOT}")
        else:
            found[prefix + name] = value
    return found


def nested(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of which `flat` made this table."""
    found: dict[str, Any] = {}
    for path, value in table.items():
        *folders, name = path.split(DOT)
        here = found
        for folder in folders:
            here = here.setdefault(folder, {})
        here[name] = value
    return found


def last(path: str) -> str:
    """Return the name of a value without the path that leads to it."""
    return path.rpartition(DOT)[2]
