"""Roll out all rows in one batch: ragged prompts, one decode step for all rows, ended rows are removed."""

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer.rollout import caches, decode, probe, table


def _prefill(model: Any, prompts: list[NDArray[np.int32]]) -> caches.Prefilled:
    """Prefill all prompts: left-padded in one batch if the family is tested for that, else one by one and merged."""
    if len(prompts) > 1 and caches.family(model) in caches.LEFT_PADDED:
        return caches.together(model, prompts)
    return caches.merged(model, prompts)


def _repeated(steps: decode.Steps, last: mx.array, source: NDArray[np.int64]) -> mx.array:
    """Repeat each prompt's cache and first logits for its rows."""
    steps.keep(source)
    return last[mx.array(source.astype(np.int32))]


def why_not(model: Any) -> str:
    """Return why this model's rows cannot be batched, "" if they can."""
    if loose := caches.unmergeable(model):
        return f"mlx-lm cannot merge {', '.join(loose)}"
    return "" if caches.family(model) in caches.LEFT_PADDED else probe.why_not(model)


def rollout(model: Any, request: table.Request) -> table.Rollout:
    """Roll out every requested row; each prompt is prefilled once, and its cache is repeated for its samples.

    Raises:
        NotImplementedError: this model's rows cannot be batched, or keys and values are to be quantised.
    """
    result = table.Rollout.empty(request, "batched")
    if not len(request.rows):
        return result
    if request.kv_bits is not None:
        raise NotImplementedError("kv_bits in a ragged batch; mlx-lm cannot merge quantised caches: use path 'prefix'")
    if reason := why_not(model):
        raise NotImplementedError(f"{reason}; use path 'prefix', or 'auto', which then takes it")
    used, source = np.unique(table.prompts_of(request), return_inverse=True)
    prefilled = _prefill(model, [request.prompts[i] for i in used])
    steps = decode.Cached(model, prefilled)
    last = _repeated(steps, prefilled.last, source)
    decode.decode(steps, last, request, result, np.arange(len(source)))
    return result
