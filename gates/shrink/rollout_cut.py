"""How much a gate that runs a model asks for, and ways to ask for less: prompts, samples, tokens, steps.

A check may fix some of it itself: 8 tokens of each row, six prompts in its first round. What is cut is therefore cut at
each call, between the check and the subject, and the check is not changed: one that counts on what it fixed refuses the
candidate, because a right subject then fails it too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gates.model import Recipe
from gates.shrink.flatten import last

CUT = "cut"  # the folder of the table that holds what every rollout is cut to
PROMPTS, SAMPLES, TOKENS, STYLE = "prompts", "samples", "max_tokens", "style"
RUN = (("loop", "steps"), ("loop", "prompts_per_step"), ("rollout", "samples_per_prompt"), ("rollout", "max_tokens"))
DRAWS = "draws"  # that a gate compares at least: a quick run takes a tenth of them
AMOUNTS = frozenset((PROMPTS, SAMPLES, TOKENS, DRAWS, "count", *(name for _, name in RUN)))
SAID_BY_CUT = frozenset((PROMPTS, SAMPLES, DRAWS))
LITTLE = (1, 2, 3, 4, 6, 8, 16)  # what is tried for all amounts at once: a small candidate is quickly judged
PLAIN, WORDED = "plain", "worded"  # styles of prompts: `7+5=` is shorter than a story about apples


def asked(inputs: Mapping[str, Any]) -> dict[str, int | str]:
    """Return what one call asks of a rollout; nothing if it is none."""
    prompts = inputs.get(PROMPTS)
    if not isinstance(prompts, Recipe) or not isinstance(inputs.get(TOKENS), int):
        return {}
    found: dict[str, int | str] = {
        name: inputs[name] for name in (SAMPLES, TOKENS) if isinstance(inputs.get(name), int)
    }
    return found | {PROMPTS: int(prompts.spec.get("count", 1)), STYLE: str(prompts.spec.get(STYLE, WORDED))}


def largest(calls: Iterable[Mapping[str, Any]]) -> dict[str, int | str]:
    """Return the most that any call asks of a rollout; nothing if none is one."""
    found: dict[str, Any] = {}
    for inputs in calls:
        for name, value in asked(inputs).items():
            found[name] = max(found.get(name, value), value)  # of the styles the worded one, as the alphabet has it
    return found


def less(inputs: Mapping[str, Any], cut: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's inputs with no more of each thing than the cut has."""
    wanted, found = asked(inputs), dict(inputs)
    if not wanted or not cut:
        return found
    for name in (SAMPLES, TOKENS):
        if name in wanted and name in cut:
            found[name] = min(int(wanted[name]), int(cut[name]))
    prompts: Recipe = found[PROMPTS]
    count = min(int(wanted[PROMPTS]), int(cut.get(PROMPTS, wanted[PROMPTS])))
    style = PLAIN if cut.get(STYLE) == PLAIN else wanted[STYLE]
    found[PROMPTS] = replace(prompts, spec={**prompts.spec, "count": count, STYLE: style})
    return found


def tokens(calls: Iterable[Mapping[str, Any]]) -> int:
    """Return how many tokens a subject is asked to draw or to score over all calls; 0 where nothing has any."""
    return sum(_tokens(inputs) for inputs in calls)


def _tokens(inputs: Mapping[str, Any]) -> int:
    if wanted := asked(inputs):
        rows = inputs.get("rows")
        number = int(wanted[PROMPTS]) * int(wanted.get(SAMPLES, 1)) if rows is None else len(rows)
        return number * int(wanted[TOKENS])
    if isinstance(tables := inputs.get("tables"), dict):
        return math.prod(int(tables.get(section, {}).get(name, 1)) for section, name in RUN)
    return int(getattr(inputs.get("tokens"), "size", 0))


def fewer(inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Ask for less: for little of everything at once, then of one thing after the other, then in fewer words."""
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
    """Return inputs without their cut, and the cut."""
    return {name: value for name, value in inputs.items() if name != CUT}, inputs.get(CUT, {})


def words(cut: Mapping[str, Any]) -> str:
    """Return a cut in words, or nothing."""
    if not cut:
        return ""
    counted = ((cut.get(PROMPTS), "prompt"), (cut.get(SAMPLES), "sample of each"), (cut.get(TOKENS), "token"))
    parts = [f"{n} {_plural(name, n)}" for n, name in counted if isinstance(n, int)]
    return f"each rollout cut to {', '.join(parts)}" + (", bare sums" if cut.get(STYLE) == PLAIN else "")


def _plural(name: str, number: int) -> str:
    first, _, rest = name.partition(" ")
    return f"{first}{'s' if number != 1 else ''}{f' {rest}' if rest else ''}"
