"""Shrink a gate's requests to a model: prompts, samples, tokens, steps.

Some checks fix these numbers themselves, such as 8 tokens per row. A cut therefore limits each call between the unchanged
check and the subject. If the check depends on the number, a correct subject fails it too, and the candidate is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gates.shrink.flatten import last

CUT = "cut"  # the key of the limits of every rollout in the inputs
PROMPTS, SAMPLES, TOKENS = "prompts", "samples", "max_tokens"
RUN = (("loop", "steps"), ("loop", "prompts_per_step"), ("rollout", "samples_per_prompt"), ("rollout", "max_tokens"))
DRAWS = "draws"  # the smallest number of compared draws; a quick run takes a tenth
AMOUNTS = frozenset((PROMPTS, SAMPLES, TOKENS, DRAWS, "count", *(name for _, name in RUN)))
IN_CUT = frozenset((PROMPTS, SAMPLES, DRAWS))
LITTLE = (1, 2, 3, 4, 6, 8, 16)  # common limits of all amounts; the smallest is fastest to judge
STYLE = "style"  # the key of the style of prompts in the inputs
PLAIN, WORDED = "plain", "worded"  # styles of prompts: `7+5=` is shorter than a story about apples


def requested(inputs: Mapping[str, Any]) -> dict[str, int]:
    """Return the amounts of a rollout call; empty for other ops."""
    prompts, samples, length = (inputs.get(name) for name in (PROMPTS, SAMPLES, TOKENS))
    if not isinstance(prompts, list) or not isinstance(samples, int) or not isinstance(length, int):
        return {}
    return {PROMPTS: len(prompts), SAMPLES: samples, TOKENS: length}


def largest(calls: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the largest amounts of all rollout calls; empty if there are none."""
    amounts: dict[str, int] = {}
    for inputs in calls:
        for name, value in requested(inputs).items():
            amounts[name] = max(amounts.get(name, value), value)
    return amounts


def less(inputs: Mapping[str, Any], cut: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's inputs with each amount limited by the cut."""
    limited = dict(inputs)
    for name, amount in requested(inputs).items():
        most = min(amount, int(cut.get(name, amount)))
        limited[name] = inputs[PROMPTS][:most] if name == PROMPTS else most
    return limited


def tokens(calls: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of tokens that the calls draw or score."""
    return sum(_tokens(inputs) for inputs in calls)


def _tokens(inputs: Mapping[str, Any]) -> int:
    if wanted := requested(inputs):
        rows = inputs.get("rows")
        number = wanted[PROMPTS] * wanted[SAMPLES] if rows is None else len(rows)
        return number * wanted[TOKENS]
    if isinstance(tables := inputs.get("tables"), dict):
        return math.prod(int(tables.get(section, {}).get(name, 1)) for section, name in RUN)
    return int(getattr(inputs.get("tokens"), "size", 0))


def fewer(inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield smaller amounts: all together, then one by one, then plain prompts."""
    amounts = {
        path: value
        for path, value in inputs.items()
        if last(path) in AMOUNTS and isinstance(value, int) and not isinstance(value, bool) and value > 1
    }
    for most in LITTLE if amounts else ():
        yield {**inputs, **{path: min(v, most * (10 if last(path) == DRAWS else 1)) for path, v in amounts.items()}}
    for path, value in amounts.items():
        for smaller in (1, 2, value // 2, value - 1):
            if 0 < smaller < value:
                yield {**inputs, path: smaller}
    worded = [
        path for path, value in inputs.items() if last(path) == STYLE and isinstance(value, str) and value == WORDED
    ]
    if worded:
        yield {**inputs, **dict.fromkeys(worded, PLAIN)}


def cut_of(inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate inputs and cut."""
    return {name: value for name, value in inputs.items() if name != CUT}, inputs.get(CUT, {})


def words(cut: Mapping[str, Any]) -> str:
    """Describe a cut, or return ""."""
    if not cut:
        return ""
    counted = ((cut.get(PROMPTS), "prompt"), (cut.get(SAMPLES), "sample of each"), (cut.get(TOKENS), "token"))
    parts = [f"{n} {_plural(name, n)}" for n, name in counted if isinstance(n, int)]
    return f"each rollout cut to {', '.join(parts)}"


def _plural(name: str, number: int) -> str:
    first, _, rest = name.partition(" ")
    return f"{first}{'s' if number != 1 else ''}{f' {rest}' if rest else ''}"
