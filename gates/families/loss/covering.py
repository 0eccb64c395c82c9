"""A pairwise covering set of the compositions of a policy loss: every valid pair of choices occurs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any

from gates_reference.algorithms import compositions

KL: tuple[dict[str, Any], ...] = (
    {},
    *(
        {"beta": 0.3, "kl_estimator": estimator, "kl_ratio": ratio}
        for estimator, ratio in product(("k1", "k2", "k3"), ("none", "token", "sequence"))
    ),
)
DENOMINATORS: tuple[dict[str, Any], ...] = (
    {"dapo_denominator": "global"},
    {"dapo_denominator": "group", "group_size": 4},
    {"dapo_denominator": "trl", "tokens_in_step": 171.5},
)
# prefixes in the names of cases; a setting with an empty one is left out
NAMES = {"beta": "", "group_size": "", "tokens_in_step": "", "kl_ratio": "kl-ratio-"}


def every() -> Iterator[Mapping[str, Any]]:
    """Yield the choices of every composition."""
    for (ratio_level, bound, aggregation), kl in product(compositions(), KL):
        axes = {"ratio_level": ratio_level, "bound": bound, "aggregation": aggregation}
        for denominator in DENOMINATORS if aggregation == "token-mean" else ({},):
            yield {**axes, **denominator, **kl}


def covering() -> list[Mapping[str, Any]]:
    """Return a small set of compositions with every valid pair of choices, by a deterministic greedy search."""
    candidates = list(every())
    numbers: dict[Any, int] = {}
    masks = [sum({1 << numbers.setdefault(pair, len(numbers)) for pair in _pairs(choices)}) for choices in candidates]
    missing, chosen = (1 << len(numbers)) - 1, []
    while missing:
        counts = [(mask & missing).bit_count() for mask in masks]
        best = counts.index(max(counts))
        chosen.append(candidates[best])
        missing &= ~masks[best]
    return chosen


def _pairs(chosen: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    aggregation = (chosen["aggregation"], chosen.get("dapo_denominator"))
    kl = (("kl_estimator", chosen.get("kl_estimator")), ("kl_ratio", chosen.get("kl_ratio")))
    return combinations((("ratio", chosen["ratio_level"]), ("bound", chosen["bound"]), aggregation, *kl), 2)


def named(chosen: Mapping[str, Any]) -> str:
    """Return the name of the case of a composition."""
    return "-".join(f"{NAMES.get(name, '')}{choice}" for name, choice in chosen.items() if NAMES.get(name) != "")
