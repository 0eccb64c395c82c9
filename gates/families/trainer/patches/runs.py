"""Mutations of whole runs: resuming, tokens, updates; loaded in workers only."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map

from gates.families.patching import Fn, mutation
from gates_reference import tiny_tokenizer
from gates_reference.trainer import logprobs


@mutation
def forget_the_optimizer(original: Fn, *arguments: Any, optimizer: Any, **rest: Any) -> Any:
    """Restore everything but the optimizer's moments."""
    position = original(*arguments, optimizer=optimizer, **rest)
    optimizer.state = tree_map(lambda x: mx.zeros_like(x) if isinstance(x, mx.array) and x.ndim else x, optimizer.state)
    return position


@mutation
def forget_the_round(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Restart the random draws."""
    return replace(original(*arguments, **rest), round=0)


@mutation
def forget_the_data(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Restart the data."""
    return replace(original(*arguments, **rest), taken=0)


@cache
def _tokenizer() -> Any:
    return tiny_tokenizer.train(272)  # that of the gate's model


@mutation
def encode_again(_original: Fn, generation: Any, rows: Any, width: int) -> Any:
    """Encode the decoded completions again."""
    tokenizer = _tokenizer()
    prompts = [generation.prompts[row // generation.group_size].ids for row in rows.tolist()]
    tokens = np.full((len(rows), width), -1, np.int32)
    lengths = np.zeros(len(rows), np.int64)
    for place, row in enumerate(rows.tolist()):
        drawn = generation.tokens[row, : generation.lengths[row]].tolist()
        ids = tokenizer.encode(tokenizer.decode(drawn, skip_special_tokens=False)).ids[:width]
        tokens[place, : len(ids)], lengths[place] = ids, len(ids)
    return logprobs.pack(prompts, tokens, lengths)


@mutation
def old_taken_anew(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Drop the old log-probs, so that the loss uses the policy's own."""
    return replace(original(*arguments, **rest), old=None)
