"""Mistakes that part sampling from scoring. Loaded in a worker only; each returns the mistaken function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def untempered(original: Fn) -> Fn:
    """Score at temperature 1."""
    return lambda logits, ids, temperature: original(logits, ids, temperature and 1.0)


def shared_prompt_length(original: Fn) -> Fn:
    """Look for every completion where the shortest prompt of the batch ends."""

    def mistaken(model: Any, batch: Any, *rest: Any, **options: Any) -> Any:
        shortest = np.full_like(batch.prompt_lengths, batch.prompt_lengths.min())
        return original(model, replace(batch, prompt_lengths=shortest), *rest, **options)

    return mistaken
