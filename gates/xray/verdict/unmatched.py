"""Notes that cannot be assigned, and lists of them."""

from __future__ import annotations

from typing import Any


class UnmatchedError(Exception):
    """A note is not of the rows of the update, or holds what it must not.

    Attributes:
        remedy: what to note.
    """

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.remedy = remedy


def flat(value: Any) -> list[Any]:
    """Return nested lists as one."""
    return [item for part in value for item in flat(part)] if isinstance(value, list) else [value]
