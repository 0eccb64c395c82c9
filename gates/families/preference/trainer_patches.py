"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def negated(original: Fn) -> Fn:
    """Read +1 as rejected."""
    return lambda part: -original(part)


def without_smoothing(original: Fn) -> Fn:
    """Take every label at its word."""
    return lambda x, settings: original(x, replace(settings, label_smoothing=0.0))


def averaged(original: Fn) -> Fn:
    """Divide by the tokens always, except where it is asked for."""
    return lambda part, *, reference_free, average: original(part, reference_free=reference_free, average=not average)


def always_free(original: Fn) -> Fn:
    """Never subtract the reference."""
    return lambda part, **asked: original(part, **{**asked, "reference_free": True})


def second_on_ties(original: Fn) -> Fn:
    """Ask with the two completions exchanged, and exchange the answer."""

    def mistaken(scores: Any) -> Any:
        return original(scores.reshape(-1, 2)[:, ::-1].reshape(-1)).reshape(-1, 2)[:, ::-1].reshape(-1)

    return mistaken


def nan_wins(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Take argmax's word for a NaN."""

    def mistaken(scores: Any, group_size: int) -> Any:
        groups = scores.reshape(-1, group_size)
        return np.argmax(groups, axis=1) + group_size * np.arange(len(groups))

    return mistaken


def everyone(original: Fn) -> Fn:
    """Learn from all rows."""
    return lambda part: part.mask | original(part)
