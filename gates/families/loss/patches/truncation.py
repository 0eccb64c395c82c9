"""Mutations of the mask of truncated completions; loaded in workers only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def tokens_stay(original: Fn, generation: Any, *arguments: Any) -> Any:
    """Count every token that was generated."""
    lengths = generation.rewards.lengths
    steps = original(generation, *arguments)
    counted = original(replace(generation, lengths=lengths), *arguments)
    return [replace(step, totals=other.totals) for step, other in zip(steps, counted, strict=True)]


@mutation
def rows_leave(original: Fn, generation: Any, *arguments: Any) -> Any:
    """Count only rows with a token."""
    steps = original(generation, *arguments)
    left = max(int(np.sum(generation.lengths > 0)), 1)
    return [replace(step, totals=replace(step.totals, rows=left)) for step in steps]


@mutation
def by_length(original: Fn, generation: Any) -> Any:
    """Treat every completion of the maximum length as truncated."""
    ended = generation.ended & (generation.lengths < generation.tokens.shape[1])
    return original(replace(generation, ended=ended))


@mutation
def ignored(_original: Fn, generation: Any) -> Any:
    """Leave everything as it is."""
    return generation
