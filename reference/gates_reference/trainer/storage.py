"""Write files atomically, and write JSON that every reader accepts."""

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def number(value: float) -> float | str:
    """Return a float for JSON: "nan", "inf" and "-inf" become strings."""
    return value if math.isfinite(value) else str(value)


def plain(value: Any) -> Any:
    """Return a value for JSON: non-finite numbers become strings, mappings and sequences become plain ones."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return number(value) if isinstance(value, float) else value


def encoded(content: Any, *, indent: int | None = None) -> bytes:
    r"""Encode any data as JSON in UTF-8.

    Values that JSON does not have, such as a Decimal, a date or bytes, become their Python `repr`. Half of a surrogate pair, which
    UTF-8 cannot hold and strict readers refuse even as an escape, becomes the six characters `\ud800`.
    """
    text = json.dumps(plain(content), indent=indent, allow_nan=False, ensure_ascii=False, default=repr)
    return re.sub("[\ud800-\udfff]", lambda half: f"\\\\u{ord(half[0]):04x}", text).encode()


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def text_at(path: Path, *keys: str) -> str | None:
    """Return the value at these keys of a JSON file as text, None if the file or a key is missing."""
    try:
        value = json.loads(path.read_bytes())
        for key in keys:
            value = value[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(value)


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: write and sync `.part`, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync(path.parent)
