"""Flatten nested inputs, such as those of two calls, into one table: `left.policy`, `right.policy`.

Recipes are flattened as well: `prompts.count`. Lists are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gates.model import Recipe

DOT = "."
RECIPE = "$recipe"  # the key of a recipe's type


def flat(inputs: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every value by its path; an empty dictionary counts as a value."""
    table: dict[str, Any] = {}
    for name, value in inputs.items():
        inner = {RECIPE: value.kind, **value.spec} if isinstance(value, Recipe) else value
        if isinstance(inner, dict) and inner:
            table |= flat(inner, f"{prefix}{name}{DOT}")
        else:
            table[prefix + name] = inner
    return table


def nested(table: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `flat`."""
    inputs: dict[str, Any] = {}
    for path, value in table.items():
        *folders, name = path.split(DOT)
        parent = inputs
        for folder in folders:
            parent = parent.setdefault(folder, {})
        parent[name] = value
    return {name: _as_recipe(value) for name, value in inputs.items()}


def _as_recipe(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {name: _as_recipe(item) for name, item in value.items()}
    kind = inner.pop(RECIPE, None)
    return inner if kind is None else Recipe(kind, inner)


def models(table: Mapping[str, Any]) -> set[str]:
    """Return the paths that define models; no move changes them, because another model fails differently."""
    roots = tuple(path.removesuffix(RECIPE) for path, v in table.items() if last(path) == RECIPE and v == "model")
    return {path for path in table if roots and path.startswith(roots)}


def last(path: str) -> str:
    """Return the last name of a path."""
    return path.rpartition(DOT)[2]
