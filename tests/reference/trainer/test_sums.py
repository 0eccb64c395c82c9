"""The built-in data: worded and plain sums."""

import re

import pytest

from gates_reference import sums


def _value(prompt: str) -> int:
    """The answer of a prompt, read from its sentences."""
    if match := re.fullmatch(r"(\d+)([+-])(\d+)=", prompt):
        left, sign, right = match.groups()
        return int(left) + (1 if sign == "+" else -1) * int(right)
    total = 0
    for sentence in prompt.split(". "):
        if number := re.search(r"\d+", sentence):
            loses = "gives" in sentence or "lost" in sentence
            total += -int(number.group()) if loses else int(number.group())
    return total


@pytest.mark.parametrize("style", ["worded", "plain"])
def test_answers_are_what_the_words_say(style: str) -> None:
    """Reading the numbers and verbs of a prompt again gives its answer."""
    rows = sums.sums(7, 200, style)
    assert [row["answer"] for row in rows] == [_value(row["prompt"]) for row in rows]


def test_a_longer_list_starts_with_the_shorter_one() -> None:
    """The stream of a seed does not depend on how much of it is taken."""
    assert sums.sums(3, 50)[:20] == sums.sums(3, 20)


def test_seeds_differ_and_lengths_are_ragged() -> None:
    """Two seeds give different sums, and prompts of many lengths."""
    assert sums.sums(1, 20) != sums.sums(2, 20)
    assert len({len(row["prompt"]) for row in sums.sums(1, 20)}) >= 10


def test_plain_sums_are_short() -> None:
    """A plain prompt has at most six characters."""
    assert max(len(row["prompt"]) for row in sums.sums(0, 500, "plain")) <= 6


def test_an_unknown_style_is_an_error() -> None:
    """The message names the legal styles."""
    with pytest.raises(ValueError, match="'worded' or 'plain'"):
        sums.sums(0, 1, "poem")
