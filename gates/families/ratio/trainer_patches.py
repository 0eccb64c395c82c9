"""Mutations of the trainer's ratios and weights; loaded in workers only."""

from __future__ import annotations

from typing import Any

from gates.families.patching import Fn, mutation


@mutation
def untempered(original: Fn, logits: Any, ids: Any, temperature: Any) -> Any:
    """Score at temperature 1."""
    return original(logits, ids, temperature and 1.0)


@mutation
def late_positions(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Start the decode one position too high after the prefill."""
    prefilled = original(*arguments, **rest)
    for layer in prefilled.cache:
        layer.offset = layer.offset + 1
    return prefilled


@mutation
def reverse_the_ratio(original: Fn, policy: Any, behaviour: Any, *rest: Any, **more: Any) -> Any:
    """Report statistics of the inverse ratio."""
    return original(behaviour, policy, *rest, **more)
