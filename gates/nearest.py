"""The nearest of the known words, for a word that is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CUTOFF = 0.6  # difflib's own: about two letters of five may differ
CLAUSE = "; did you mean {}?"


def nearest(word: str, known: Iterable[str], most: int = 1, cutoff: float = CUTOFF) -> list[str]:
    """Return the known words that are nearest to a word, at most `most`; capitals do not count."""
    folded: dict[str, str] = {}
    for name in known:
        folded.setdefault(name.casefold(), name)
    return [folded[near] for near in get_close_matches(word.casefold(), list(folded), most, cutoff)]


def hint(word: str, known: Iterable[str], most: int = 1, form: str = CLAUSE) -> str:
    """Return `; did you mean 'x'?`, or nothing if no known word is near."""
    near = nearest(word, known, most)
    return form.format(" or ".join(map(repr, near))) if near else ""
