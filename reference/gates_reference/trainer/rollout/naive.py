"""The rollout that defines the result: a full forward pass over prompt and completion for every token, without a cache.

Texts of the same length are stacked without padding; ended rows are removed. The bookkeeping is not shared with the batched path, so
that a mistake there shows as a difference.
"""

from collections.abc import Iterator
from typing import Any, Final

import mlx.core as mx
import numpy as np

from gates_reference.trainer import sampling
from gates_reference.trainer.rollout import table

STACK: Final = 256
"""The most texts of one forward pass; more are not faster on a CPU and cost memory."""


def rollout(model: Any, request: table.Request) -> table.Rollout:
    """Roll out every requested row."""
    if request.kv_bits is not None:
        raise NotImplementedError(f"kv_bits {request.kv_bits} without a cache; path 'naive' has none")
    result = table.Rollout.empty(request, "naive")
    for live in _lockstep(request):
        texts = np.stack([request.prompts[request.rows[row, 0]] for row in live]).astype(np.int32)
        _roll(model, request, result, live, texts)
    return result


def _lockstep(request: table.Request) -> Iterator[list[int]]:
    """Yield rows whose prompts have the same length, at most `STACK` at a time."""
    lengths = [len(request.prompts[i]) for i, _ in request.rows]
    for length in sorted(set(lengths)):
        same = [row for row, other in enumerate(lengths) if other == length]
        for start in range(0, len(same), STACK):
            yield same[start : start + STACK]


def _roll(
    model: Any, request: table.Request, result: table.Rollout, live: list[int], texts: np.ndarray[Any, Any]
) -> None:
    for t in range(request.max_tokens):
        logits = np.array(model(mx.array(texts))[:, -1, :].astype(mx.float32))
        u = sampling.uniforms(request.seed, request.round, request.rows[live], t)
        coin = sampling.coins(request.seed, request.round, request.rows[live], t)
        drawn = sampling.sample(logits, u, request.settings, coin, history=texts)
        result.record(np.array(live), t, logits, u, drawn, keep=request.record_logits)
        goes_on: list[int] = []
        for k, row in enumerate(live):
            result.lengths[row] = t + 1
            if int(drawn.tokens[k]) in request.eos_ids:
                result.ended[row] = True
            elif request.limits is None or t + 1 < request.limits[row]:
                goes_on.append(k)
        if not goes_on:
            return
        texts = np.concatenate([texts, drawn.tokens[:, None]], axis=1)[goes_on]
        live = [live[k] for k in goes_on]
