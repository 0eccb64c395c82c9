"""An expression that selects cases by their names, as `-k` of pytest does: names with `and`, `or`, `not`, parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gates.model import ConfigurationError

TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
WORDS = frozenset(("and", "or", "not", "(", ")"))

Matcher = Callable[[str], bool]


def parse(text: str) -> Matcher:
    """Return whether a name matches an expression; a word of it matches where it is part of the name, in any case.

    Raises:
        ConfigurationError: the text is no expression.
    """
    parser = _Parser(text, [match[1] for match in TOKEN.finditer(text)])
    matcher = parser.either()
    if parser.tokens:
        raise parser.error(f"{parser.tokens[0]!r} is not expected")
    return matcher


@dataclass(slots=True)
class _Parser:
    """The tokens that are left of an expression."""

    text: str
    tokens: list[str]

    def error(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"-k {self.text!r}: {why}; an expression is like 'dapo and not (float16 or holes)'; a name matches by a part of it"
        )

    def either(self) -> Matcher:
        left = self.both()
        while self.tokens[:1] == ["or"]:
            del self.tokens[0]
            left = _either(left, self.both())
        return left

    def both(self) -> Matcher:
        left = self.negated()
        while self.tokens[:1] == ["and"]:
            del self.tokens[0]
            left = _both(left, self.negated())
        return left

    def negated(self) -> Matcher:
        if self.tokens[:1] == ["not"]:
            del self.tokens[0]
            inner = self.negated()
            return lambda name: not inner(name)
        return self.operand()

    def operand(self) -> Matcher:
        if not self.tokens:
            raise self.error("a name is missing at its end")
        name = self.tokens.pop(0)
        if name == "(":
            inner = self.either()
            if self.tokens[:1] != [")"]:
                raise self.error("a parenthesis is not closed")
            del self.tokens[0]
            return inner
        if name in WORDS:
            raise self.error(f"a name is missing before {name!r}")
        part = name.lower()
        return lambda full: part in full.lower()


def _either(left: Matcher, right: Matcher) -> Matcher:
    return lambda name: left(name) or right(name)


def _both(left: Matcher, right: Matcher) -> Matcher:
    return lambda name: left(name) and right(name)
