"""Write a resolved configuration as TOML with every default; a key without a value becomes a comment."""

import json
from collections.abc import Mapping
from typing import Any


def toml(tables: Mapping[str, Any]) -> str:
    """Return the tables as TOML; reading it gives the same configuration."""
    blocks = [
        f"[{name}]\n" + "".join(_line(key, value) for key, value in table.items()) for name, table in tables.items()
    ]
    return "\n".join(blocks)


def _line(key: str, value: Any) -> str:
    return f"# {key} has no value\n" if value is None else f"{key} = {_value(value)}\n"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    return json.dumps(value)  # strings, numbers and booleans are written as JSON writes them
