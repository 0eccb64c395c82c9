"""Find numbers in text in linear time: one pass from left to right, without backtracking."""

from decimal import Decimal
from fractions import Fraction
from typing import Final

MARKS: Final = ("####", "\\boxed{")
"""Marks before the final answer, in GSM8K (Cobbe et al. 2021) and in LaTeX; the first number after the last mark counts."""
EXPECTED: Final = "a number, a text that is one ('1,000', '-2.5') or a text with one after #### or in \\boxed{}"
"""The accepted forms of an expected answer, for messages."""
LONGEST: Final = 100
"""The most characters of a number: Python's conversion takes more than linear time, and no answer has as many."""

_DIGITS: Final = frozenset("0123456789")


def _end_of_number(text: str, start: int) -> int:
    """Return the end of the number that starts at `start`: digits, thousands separators, one decimal point."""
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
    """Return the spans of all numbers; a minus belongs to a number unless a digit, letter or closing bracket precedes it."""
    result: list[tuple[int, int]] = []
    at = 0
    while at < len(text):
        if text[at] not in _DIGITS:
            at += 1
            continue
        end = _end_of_number(text, at)
        minus = (
            at > 0 and text[at - 1] in "-\u2212" and not (at > 1 and (text[at - 2].isalnum() or text[at - 2] in ")]"))
        )
        result.append((at - minus, end))
        at = end
    return result


def value(text: str) -> Fraction | None:
    """Return the exact value of a number's text; None if it has more than `LONGEST` characters."""
    plain = text.replace(",", "").replace("\u2212", "-")
    return None if len(plain) > LONGEST else Fraction(plain)


def _marked(text: str) -> int:
    """Return the end of the last mark in a text; -1 if it has none."""
    return max(text.rfind(mark) + len(mark) if mark in text else -1 for mark in MARKS)


def answer(text: str) -> Fraction | None:
    """Return the final answer of a text: the first number after its last mark, else its last number, else None."""
    marked = _marked(text)
    if marked >= 0:
        numbers = spans(text[marked:])
        if numbers:
            return value(text[marked:][slice(*numbers[0])])
    numbers = spans(text)
    return value(text[slice(*numbers[-1])]) if numbers else None


def alone(text: str) -> Fraction | None:
    """Return the number that is all of a text, or all after its last mark up to a closing brace; None if there is anything else.

    Expected answers must be unambiguous, unlike completions (`answer`): in "3/4" or "1e3" one of the two numbers would be taken
    without notice.
    """
    marked = _marked(text)
    shown = (text if marked < 0 else text[marked:].partition("}")[0]).strip()
    return value(shown) if spans(shown) == [(0, len(shown))] else None


def exact(wanted: object) -> Fraction | None:
    """Return an expected answer, a number or a text that `alone` accepts, as an exact number; None for anything else."""
    if isinstance(wanted, bool) or wanted is None:
        return None
    if isinstance(wanted, int):
        return Fraction(wanted)
    if isinstance(wanted, float):
        return Fraction(repr(wanted)) if wanted - wanted == 0 else None
    if isinstance(wanted, Decimal):
        return Fraction(wanted) if wanted.is_finite() else None
    return alone(wanted) if isinstance(wanted, str) else None
