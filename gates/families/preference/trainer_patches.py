"""Mutations of the trainer's preference losses; loaded in workers only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def negated(original: Fn, part: Any) -> Any:
    """Read +1 as rejected."""
    return -original(part)


@mutation
def without_smoothing(original: Fn, x: Any, settings: Any) -> Any:
    """Ignore label smoothing."""
    return original(x, replace(settings, label_smoothing=0.0))


@mutation
def averaged(original: Fn, part: Any, *, reference_free: Any, average: Any) -> Any:
    """Invert whether log-ratios are averaged over tokens."""
    return original(part, reference_free=reference_free, average=not average)


@mutation
def always_free(original: Fn, part: Any, **asked: Any) -> Any:
    """Never subtract the reference."""
    return original(part, **{**asked, "reference_free": True})


@mutation
def second_on_ties(original: Fn, scores: Any) -> Any:
    """Compare with the two completions exchanged, so that ties go to the second."""
    return original(scores.reshape(-1, 2)[:, ::-1].reshape(-1)).reshape(-1, 2)[:, ::-1].reshape(-1)


@mutation
def nan_wins(_original: Fn, scores: Any, group_size: int) -> Any:
    """Use argmax, which selects a NaN."""
    groups = scores.reshape(-1, group_size)
    return np.argmax(groups, axis=1) + group_size * np.arange(len(groups))


@mutation
def everyone(original: Fn, part: Any) -> Any:
    """Train on all rows."""
    return part.mask | original(part)
