"""Numbers in text, found in one pass from left to right without backtracking: the time is linear in the text."""

from decimal import Decimal
from fractions import Fraction
from typing import Final

MARKS: Final = ("####", "\\boxed{")
"""What announces the final answer, in GSM8K (Cobbe et al. 2021) and in LaTeX; after the last of them the first number counts."""
EXPECTED: Final = "a number, a text that is one ('1,000', '-2.5') or a text with one after #### or in \\boxed{}"
"""What an expected answer must be, for messages."""
LONGEST: Final = 100
"""Digits; Python's conversion of longer ones takes more than linear time, and no answer has as many."""

_DIGITS: Final = frozenset("0123456789")


def _end_of_number(text: str, start: int) -> int:
    """Where the number ends that starts with the digit at `start`: digits, thousands separators, one decimal point."""
    at = start
    while at < len(text) and text[at] in _DIGITS:
        at += 1
    while text[at : at + 1] == "," and _three_digits(text, at + 1):
        at += 4
    if text[at : at + 1] == "." and text[at + 1 : at + 2] in _DIGITS:
        at += 1
        while at < len(text) and text[at] in _DIGITS:
            at += 1
    return at


def _three_digits(text: str, at: int) -> bool:
    return all(text[n : n + 1] in _DIGITS for n in range(at, at + 3)) and text[at + 3 : at + 4] not in _DIGITS


def spans(text: str) -> list[tuple[int, int]]:
    """Where the numbers of a text stand. A minus belongs to a number unless a digit, letter or closing bracket stands before it."""
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(text):
        if text[at] not in _DIGITS:
            at += 1
            continue
        end = _end_of_number(text, at)
        minus = (
            at > 0 and text[at - 1] in "-\u2212" and not (at > 1 and (text[at - 2].isalnum() or text[at - 2] in ")]"))
        )
        found.append((at - minus, end))
        at = end
    return found


def value(text: str) -> Fraction | None:
    """The exact value of a number's text; None if it has more than `LONGEST` characters."""
    plain = text.replace(",", "").replace("\u2212", "-")
    return None if len(plain) > LONGEST else Fraction(plain)


def _marked(text: str) -> int:
    """Where the last mark of a text ends; -1 if it has none."""
    return max(text.rfind(mark) + len(mark) if mark in text else -1 for mark in MARKS)


def answer(text: str) -> Fraction | None:
    """The final answer of a text: the first number after its last mark, else its last number; None if there is none."""
    marked = _marked(text)
    if marked >= 0:
        found = spans(text[marked:])
        if found:
            return value(text[marked:][slice(*found[0])])
    found = spans(text)
    return value(text[slice(*found[-1])]) if found else None


def alone(text: str) -> Fraction | None:
    """The one number that a text is, or that stands after its last mark, up to a closing brace; None if anything stands beside it.

    A completion is read as well as can be (`answer`). An expected answer must leave no doubt: of "3/4" or "1e3" one of the two
    numbers would be a wrong one, and nobody would see it.
    """
    marked = _marked(text)
    shown = (text if marked < 0 else text[marked:].partition("}")[0]).strip()
    return value(shown) if spans(shown) == [(0, len(shown))] else None


def exact(wanted: object) -> Fraction | None:
    """An expected answer as an exact number: of a number itself, or of a text that `alone` reads; None for anything else."""
    if isinstance(wanted, bool) or wanted is None:
        return None
    if isinstance(wanted, int):
        return Fraction(wanted)
    if isinstance(wanted, float):
        return Fraction(repr(wanted)) if wanted - wanted == 0 else None
    if isinstance(wanted, Decimal):
        return Fraction(wanted) if wanted.is_finite() else None
    return alone(wanted) if isinstance(wanted, str) else None
