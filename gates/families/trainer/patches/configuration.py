"""Mutations of configured settings; loaded in workers only."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from typing import Any

from mlx.utils import tree_map

from gates.families.patching import Fn, mutation
from gates_reference.trainer import lora


@mutation
def own_betas(original: Fn, settings: Any) -> Any:
    """Leave the betas at their defaults."""
    return original(settings.model_copy(update={"betas": (0.9, 0.999)}))


@mutation
def unclipped(_original: Fn, gradient: Any, *_: Any) -> Any:
    """Return the gradient as it is."""
    return gradient


def scaled_now_and_then(original: Fn) -> Fn:
    """Leave a loss scale of 1024 in every 13th gradient."""
    calls = count(1)

    def mistaken(*arguments: Any) -> Any:
        value, gradient = original(*arguments)
        return value, tree_map(lambda x: x * 1024, gradient) if next(calls) % 13 == 0 else gradient

    return mistaken


def base_now_and_then(original: Fn) -> Fn:
    """Compute the old log-probs of every 19th batch with the adapters off, as after a reference pass."""
    calls = count(1)

    def mistaken(model: Any, *arguments: Any, **options: Any) -> Any:
        with lora.adapters_off(model) if next(calls) % 19 == 0 else nullcontext():
            return original(model, *arguments, **options)

    return mistaken


@mutation
def untempered(original: Fn, model: Any, batch: Any, temperature: Any, **rest: Any) -> Any:
    """Score at temperature 1."""
    return original(model, batch, temperature and 1.0, **rest)
