"""All rows together: ragged prompts left-padded into one prefill, one step for all rows, ended rows compacted away."""

from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import cache as caches
from numpy.typing import NDArray

from reference.trainer import sampling
from reference.trainer.rollout import rows, table


def _prefill(model: Any, prompts: list[NDArray[np.int32]]) -> tuple[list[Any], mx.array]:
    """Caches and last logits (P, V) of left-padded prompts.

    Raises:
        NotImplementedError: the model's caches are not plain key-value caches.
    """
    kinds = {type(one).__name__ for one in caches.make_prompt_cache(model)}
    if kinds != {"KVCache"}:
        raise NotImplementedError(f"the batched rollout knows KVCache, this model has {sorted(kinds)}")
    longest = max(len(prompt) for prompt in prompts)
    padding = [longest - len(prompt) for prompt in prompts]
    cache = [caches.BatchKVCache(padding) for _ in model.layers]
    ids = np.zeros((len(prompts), longest), np.int32)
    for row, prompt in enumerate(prompts):
        ids[row, padding[row] :] = prompt
    return cache, model(mx.array(ids), cache=cache)[:, -1, :]


def _keep(cache: list[Any], positions: NDArray[np.int64]) -> None:
    """Keep these rows of every layer's cache, repeated where a position is."""
    chosen = mx.array(positions.astype(np.int32))
    for layer in cache:
        layer.filter(chosen)


def rollout(model: Any, request: table.Request) -> table.Rollout:
    """The tokens of every requested row; each prompt is prefilled once and its cache repeated for its samples."""
    result = table.Rollout.empty(request)
    if not len(request.rows):
        return result
    numbers = request.rows[:, 0] * request.samples + request.rows[:, 1]
    pairs = rows.prompt_of_row(numbers, len(request.prompts), request.samples)
    used, source = np.unique(pairs[:, 0], return_inverse=True)
    cache, last = _prefill(model, [request.prompts[i] for i in used])
    _keep(cache, source)
    last = last[mx.array(source.astype(np.int32))]
    live = np.arange(len(pairs))
    done = np.zeros(len(pairs), np.bool_)
    for t in range(request.max_tokens):
        logits = np.array(last.astype(mx.float32))
        keys = rows.draw_index(pairs[live], np.arange(len(live)))
        u = sampling.uniforms(request.seed, request.round, keys, t)
        drawn = sampling.sample(logits, u, request.settings)
        result.record(live, t, logits, u, drawn, keep=request.record_logits)
        result.lengths[live] = t + 1
        done[live] = rows.finished(drawn.tokens, request.eos_ids, done[live])
        going = np.flatnonzero(~done[live])
        if t + 1 == request.max_tokens or not len(going):
            break
        tokens = drawn.tokens[going]
        if len(going) < len(live):
            _keep(cache, going)
            live = live[going]
        last = model(mx.array(tokens[:, None]), cache=cache)[:, -1, :]
    result.ended[:] = done
    return result
