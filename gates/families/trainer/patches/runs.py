"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map

from reference import tiny_tokenizer
from reference.trainer import logprobs

Fn = Callable[..., Any]


def forget_the_optimizer(original: Fn) -> Fn:
    """Restore everything but the optimizer's moments."""

    def mistaken(*arguments: Any, optimizer: Any, **rest: Any) -> Any:
        position = original(*arguments, optimizer=optimizer, **rest)
        optimizer.state = tree_map(
            lambda x: mx.zeros_like(x) if isinstance(x, mx.array) and x.ndim else x, optimizer.state
        )
        return position

    return mistaken


def forget_the_round(original: Fn) -> Fn:
    """Start the draws again."""
    return lambda *arguments, **rest: replace(original(*arguments, **rest), round=0)


def forget_the_data(original: Fn) -> Fn:
    """Start the data again."""
    return lambda *arguments, **rest: replace(original(*arguments, **rest), taken=0)


@cache
def _tokenizer() -> Any:
    return tiny_tokenizer.train(272)  # that of the gate's model


def encode_again(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole function
    """Encode the completions' text."""

    def mistaken(generation: Any, rows: Any, width: int) -> Any:
        tokenizer = _tokenizer()
        prompts = [generation.prompts[row // generation.group_size].ids for row in rows.tolist()]
        tokens = np.full((len(rows), width), -1, np.int32)
        lengths = np.zeros(len(rows), np.int64)
        for place, row in enumerate(rows.tolist()):
            drawn = generation.tokens[row, : generation.lengths[row]].tolist()
            ids = tokenizer.encode(tokenizer.decode(drawn, skip_special_tokens=False)).ids[:width]
            tokens[place, : len(ids)], lengths[place] = ids, len(ids)
        return logprobs.pack(prompts, tokens, lengths)

    return mistaken


def old_taken_anew(original: Fn) -> Fn:
    """Drop the old log-probs, which the loss then takes from the policy itself."""
    return lambda *arguments, **rest: replace(original(*arguments, **rest), old=None)
