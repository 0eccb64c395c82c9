"""Rewards from the texts that were rewarded, each function written once more."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay.measure import Measures
from gates.replay.run import Run
from gates.replay.trace import Rollout

TEXT = "completions whose text is not that of their tokens"
RAW = "error of a reward"
TOTAL = "error of a total"
QUANTITIES = (TEXT, RAW, TOTAL)
NUMBER = re.compile(r"[0-9]+(?:,[0-9]{3}(?![0-9]))*(?:\.[0-9]+)?")


MARKS = ("####", "\\boxed{")


def replay(run: Run) -> Measures:
    """Recompute rewards and totals of all rollouts, evaluations included."""
    found = Measures(dict.fromkeys(QUANTITIES, (0.0, "")))
    trace = run.trace
    functions = trace.config["rewards"]["functions"]
    steps = [(f"step {step.number}", rollout) for step in trace.steps for rollout in step.rollouts]
    steps += [(f"evaluation after step {e.number}", rollout) for e in trace.evaluations for rollout in e.rollouts]
    for where, rollout in steps:
        if rollout.asked is None:
            continue
        for row in range(len(rollout.lengths)):
            ids = rollout.completion(row)[: int(rollout.lengths[row]) - bool(rollout.ended[row])]
            text = run.tokenizer.decode(ids.tolist(), skip_special_tokens=False)
            found.count(TEXT, int(text != rollout.texts["completions"][row]), f"{where}, row {row + 1}: {text!r}")
        wanted = [_column(run, function, rollout) for function in functions]
        if rollout.rewards.shape[1] != len(wanted):
            found.add(RAW, float("inf"), f"{where}: {rollout.rewards.shape[1]} functions, must be {len(wanted)}")
            continue
        for number, (function, column) in enumerate(zip(functions, wanted, strict=True)):
            if column is None:
                found.leave_out(
                    f"the reward {function['name']!r}, a function of the user: its values are taken as recorded"
                )
                continue
            found.distance(RAW, rollout.rewards[:, number], column, f"{where}, {function['name']}")
        weights = np.array([function["weight"] for function in functions])
        found.distance(TOTAL, rollout.weights, weights, f"{where}, weights")
    for step in trace.steps:
        if step.arrays:
            totals = step.gathered(lambda rollout: rollout.totals)
            found.distance(TOTAL, step.arrays["totals"], totals, f"step {step.number}")
    return found


def _column(run: Run, function: Mapping[str, Any], rollout: Rollout) -> Array | None:
    name = function["name"]
    own = str(function.get("function", "")).rpartition(":")[2]
    if name == "user" and own in run.users and run.rows is not None:
        rows = [run.rows[index] for index in np.repeat(rollout.prompts, rollout.group_size)]
        pairs = zip(rollout.texts["completions"], rows, strict=True)
        return np.array([run.users[own](text, row) for text, row in pairs], np.float64)
    if name not in FUNCTIONS:
        return None
    return np.array(FUNCTIONS[name](function, rollout), np.float64)


def _accuracy(_: Mapping[str, Any], rollout: Rollout) -> list[float]:
    """Return 1 where the last number of the text, or the first after a mark of an answer, is the expected one."""
    answers = np.repeat(np.array(rollout.texts["answers"], object), rollout.group_size)
    pairs = zip(rollout.texts["completions"], answers, strict=True)
    return [float(bool(_final(text)) and _final(text) == _final(str(answer))) for text, answer in pairs]


def _final(text: str) -> list[Fraction]:
    """Return the first number after the last mark of an answer, else the last number; none without a number."""
    marked = max((text.rfind(mark) + len(mark) for mark in MARKS if mark in text), default=None)
    numbers = _numbers(text[marked:])[:1] if marked is not None else []
    return numbers or _numbers(text)[-1:]


def _numbers(text: str) -> list[Fraction]:
    """Return the numbers of a text; a minus is one's sign unless it follows a letter, a digit or a closing bracket."""
    found = []
    for match in NUMBER.finditer(text):
        start = match.start()
        minus = text[start - 1 : start] in ("-", "\u2212") if start else False
        before = text[start - 2 : start - 1] if start > 1 else ""
        negative = minus and not (before.isalnum() or before in (")", "]"))
        found.append(Fraction(match[0].replace(",", "")) * (-1 if negative else 1))
    return found


def _regex(function: Mapping[str, Any], rollout: Rollout) -> list[float]:
    return [float(re.search(function["pattern"], text) is not None) for text in rollout.texts["completions"]]


def _format(function: Mapping[str, Any], rollout: Rollout) -> list[float]:
    marks = [mark for tag in function["tags"] for mark in (f"<{tag}>", f"</{tag}>")]
    scores = []
    for text in rollout.texts["completions"]:
        places = [text.find(mark) for mark in marks]
        scores.append(float(all(text.count(mark) == 1 for mark in marks) and places == sorted(places)))
    return scores


def _length(function: Mapping[str, Any], rollout: Rollout) -> list[float]:
    limit, margin = function["max_tokens"], function["margin_tokens"]
    return [min(0.0, max((limit - margin - int(n)) / margin, -1.0)) for n in rollout.lengths]


def _diversity(function: Mapping[str, Any], rollout: Rollout) -> list[float]:
    """Return 1 less the mean Jaccard overlap of a text's n-grams with those of the others of its group."""
    size, words = rollout.group_size, function["words"]
    grams = [_grams(text.split(), words) for text in rollout.texts["completions"]]
    scores = []
    for row, own in enumerate(grams):
        start = row - row % size
        others = [grams[other] for other in range(start, start + size) if other != row]
        overlaps = [len(own & other) / len(own | other) if own | other else 1.0 for other in others]
        scores.append(1.0 - sum(overlaps) / len(overlaps) if overlaps else 1.0)
    return scores


def _grams(parts: Sequence[str], words: int) -> set[tuple[str, ...]]:
    return set(zip(*(parts[offset:] for offset in range(words)), strict=False))


FUNCTIONS: Mapping[str, Callable[[Mapping[str, Any], Rollout], list[float]]] = {
    "accuracy": _accuracy,
    "regex": _regex,
    "format": _format,
    "length": _length,
    "diversity": _diversity,
}
