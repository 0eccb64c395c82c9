"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Fn = Callable[..., Any]


def untempered(original: Fn) -> Fn:
    """Score at temperature 1."""
    return lambda logits, ids, temperature: original(logits, ids, temperature and 1.0)


def late_positions(original: Fn) -> Fn:
    """Count the positions of the decode from one too many after the prefill."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        prefilled = original(*arguments, **rest)
        for layer in prefilled.cache:
            layer.offset = layer.offset + 1
        return prefilled

    return mistaken


def reverse_the_ratio(original: Fn) -> Fn:
    """Report how far the old policy is from the new one."""

    def mistaken(policy: Any, behaviour: Any, *rest: Any, **more: Any) -> Any:
        return original(behaviour, policy, *rest, **more)

    return mistaken
