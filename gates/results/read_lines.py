"""Read lines of an untrusted file: a regular file, complete lines of limited length, strict JSON."""

from __future__ import annotations

import gzip
import json
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from gates.errors import ConfigurationError, unreadable

LINE_LIMIT = 16 << 20  # bytes: a hundred times the longest line of a run


def whole_lines(path: Path, *, torn: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each complete line, and with `torn` of an incomplete last line.

    A file whose name ends in `.gz` is decompressed as it is read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe or a device might never end
            raise ConfigurationError(f"cannot read {path}: is no regular file; write a pipe to a file first")
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            number = 0
            while line := file.readline(LINE_LIMIT + 1):
                number += 1
                if len(line) > LINE_LIMIT:
                    raise ConfigurationError(f"{path}:{number} has more than {LINE_LIMIT} bytes, so it is no record")
                if torn or line.endswith(b"\n"):
                    yield number, line.removesuffix(b"\n")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigurationError(f"cannot read {path}: is not gzip to its end ({error})") from None
    except OSError as error:
        raise unreadable(path, error) from None


def first_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in the first line, or an empty one; errors are left to the reader of the whole file."""
    try:
        _, line = next(whole_lines(path))
        document = json.loads(line)
    except (StopIteration, ConfigurationError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def strict(line: bytes) -> str:
    """Return an error if the line has NaN or Infinity as a number, which is not JSON; else "".

    Both are legal in strings, so a line with either is parsed.
    """
    if (b"N" not in line or b"NaN" not in line) and (b"I" not in line or b"Infinity" not in line):  # one byte is quick
        return ""
    try:
        json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def _refuse(name: str) -> NoReturn:
    raise ValueError(f'{name} is no JSON; numbers that are not finite are the texts "nan", "inf" and "-inf"')
