"""The built-in reward functions; their time is linear in the length of the text, or limited."""

from collections.abc import Sequence
from typing import Any

import regex as timed_regex  # type: ignore[import-untyped]  # unlike the standard library's, its searches take a time limit

from gates_reference.trainer.rewards import numbers
from gates_reference.trainer.rewards.samples import Reward, Sample


def accuracy() -> Reward:
    """Score 1.0 if the completion's final answer equals the expected number exactly, else 0.0.

    Raises:
        ValueError: the expected answer of a sample is not one number.
    """

    def score(samples: Sequence[Sample]) -> list[float]:
        return [_right(sample) for sample in samples]

    return score


def _right(sample: Sample) -> float:
    wanted = numbers.exact(sample.answer)
    if wanted is None:
        raise ValueError(
            f"the expected answer is {sample.answer!r}, must be {numbers.EXPECTED}; is data.answer_column right?"
        )
    return float(numbers.answer(sample.completion) == wanted)


def format_(tags: Sequence[str]) -> Reward:
    """Score 1.0 if `<tag>` and `</tag>` of every tag occur once each and in order, else 0.0."""
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]

    def score(samples: Sequence[Sample]) -> list[float]:
        return [float(_in_order(sample.completion, marks)) for sample in samples]

    return score


def _in_order(text: str, marks: Sequence[str]) -> bool:
    positions = [text.find(mark) for mark in marks]
    once = all(position >= 0 and text.rfind(mark) == position for mark, position in zip(marks, positions, strict=True))
    return once and positions == sorted(positions)


def length(max_tokens: int, margin_tokens: int) -> Reward:
    """Score DAPO's over-long penalty (Yu et al. 2025, arXiv 2503.14476, eq. 13) of a completion of n tokens.

    It is 0 up to `max_tokens - margin_tokens`, then (max - margin - n) / margin, and -1 beyond `max_tokens`.
    """
    if not 1 <= margin_tokens <= max_tokens:
        raise ValueError(f"margin_tokens is {margin_tokens}, must be in 1..max_tokens = {max_tokens}")

    def score(samples: Sequence[Sample]) -> list[float]:
        free = max_tokens - margin_tokens
        return [0.0 if s.tokens <= free else max((free - s.tokens) / margin_tokens, -1.0) for s in samples]

    return score


def diversity(words: int) -> Reward:
    """Score 1 - the mean Jaccard overlap of a completion's n-grams of `words` words with the others in its group.

    A completion that is alone in its group scores 1. Two completions without any n-gram have overlap 1.
    """

    def score(samples: Sequence[Sample]) -> list[float]:
        grams = [_grams(sample.completion, words) for sample in samples]
        groups: dict[int, list[int]] = {}
        for n, sample in enumerate(samples):
            groups.setdefault(sample.group, []).append(n)
        return [_apart(grams, n, groups[sample.group]) for n, sample in enumerate(samples)]

    return score


def _grams(text: str, words: int) -> frozenset[tuple[str, ...]]:
    parts = text.split()
    return frozenset(tuple(parts[n : n + words]) for n in range(len(parts) - words + 1))


def _apart(grams: Sequence[frozenset[Any]], n: int, group: Sequence[int]) -> float:
    others = [grams[k] for k in group if k != n]
    if not others:
        return 1.0
    overlaps = [len(grams[n] & o) / len(grams[n] | o) if grams[n] | o else 1.0 for o in others]
    return 1.0 - sum(overlaps) / len(overlaps)


def regex(pattern: str, limit_seconds: float) -> Reward:
    """Score 1.0 if the pattern is found, else 0.0; each search has a time limit, because backtracking may take for ever.

    Raises:
        ValueError: the pattern is no regular expression.
        TimeoutError: a search took longer.
    """
    try:
        compiled = timed_regex.compile(pattern)
    except timed_regex.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression ({error})") from None

    def score(samples: Sequence[Sample]) -> list[float]:
        return [_found(compiled, sample.completion, limit_seconds) for sample in samples]

    return score


def _found(compiled: Any, text: str, limit_seconds: float) -> float:
    try:
        return float(compiled.search(text, timeout=limit_seconds) is not None)
    except TimeoutError:
        raise TimeoutError(
            f"pattern {compiled.pattern!r} took longer than {limit_seconds} s on {text[:60]!r}; "
            "write it without nested repetition, or raise limit_seconds"
        ) from None
