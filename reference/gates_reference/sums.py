"""Arithmetic problems with integer answers, the same on every machine for the same seed.

The style "worded" imitates GSM8K (Cobbe et al. 2021): a few sentences, one to four steps, one integer. The style "plain" is a bare
sum, short enough for a rollout without a cache. The random bits come from NumPy's Philox bit generator, whose stream NumPy
guarantees; NumPy's distributions are not guaranteed and not used.
"""

from typing import Final, Literal, TypedDict

import numpy as np

NAMES: Final = ("Ada", "Ben", "Chidi", "Dora", "Emil", "Farah", "Goro", "Hanna", "Ines", "Jun", "Kofi", "Lena")
THINGS: Final = ("apples", "books", "coins", "eggs", "kites", "marbles", "pencils", "shells", "stamps", "tickets")
STEPS: Final = (
    ("{who} finds {n} more.", 1),
    ("Then {who} buys {n} {things} at the market.", 1),
    ("{who} gives {n} to a friend.", -1),
    ("After lunch {n} of the {things} are lost.", -1),
)


class Sum(TypedDict):
    """A question and its answer."""

    prompt: str
    answer: int


class _Bits:
    """Integers from a stream of 64-bit words."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.Philox(key=seed)

    def below(self, limit: int) -> int:
        """Return an integer in [0, limit); the bias of the remainder is below limit / 2**64."""
        return int(self._words.random_raw()) % limit


def _plain(bits: _Bits) -> Sum:
    left, right = bits.below(99) + 1, bits.below(99) + 1
    if bits.below(2):
        return {"prompt": f"{left}+{right}=", "answer": left + right}
    return {"prompt": f"{left}-{right}=", "answer": left - right}


def _worded(bits: _Bits) -> Sum:
    who, things = NAMES[bits.below(len(NAMES))], THINGS[bits.below(len(THINGS))]
    total = bits.below(40) + 20
    sentences = [f"{who} has {total} {things}."]
    for _ in range(bits.below(4) + 1):
        sentence, sign = STEPS[bits.below(len(STEPS))]
        change = bits.below(12) + 1
        if sign < 0:
            change = min(change, total)
        total += sign * change
        sentences.append(sentence.format(who=who, things=things, n=change))
    sentences.append(f"How many {things} does {who} have now?")
    return {"prompt": " ".join(sentences), "answer": total}


def sums(seed: int, count: int, style: Literal["worded", "plain"] = "worded") -> list[Sum]:
    """Return the first `count` sums of the stream of `seed`; a longer list starts with the shorter one.

    Raises:
        ValueError: the style is unknown or the count negative.
    """
    if style not in {"worded", "plain"}:
        raise ValueError(f"style is {style!r}, must be 'worded' or 'plain'")
    if count < 0:
        raise ValueError(f"count is {count}, must be at least 0")
    bits = _Bits(seed)
    make = _plain if style == "plain" else _worded
    return [make(bits) for _ in range(count)]
