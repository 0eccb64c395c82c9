"""Suggest the nearest known names for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CUTOFF = 0.6  # difflib's own: about two letters of five may differ
CLAUSE = "; did you mean {}?"


def nearest(name: str, known: Iterable[str], most: int = 1, cutoff: float = CUTOFF) -> list[str]:
    """Return at most `most` known names similar to `name`, ignoring case."""
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.casefold(), candidate)
    return [folded[match] for match in get_close_matches(name.casefold(), list(folded), most, cutoff)]


def hint(name: str, known: Iterable[str], most: int = 1, form: str = CLAUSE) -> str:
    """Return `; did you mean 'x'?`, or nothing if no known name is near."""
    near = nearest(name, known, most)
    return form.format(" or ".join(map(repr, near))) if near else ""
