"""Roll out one group at a time: its prompt is prefilled once, and the cache is repeated for its samples.

No row is padded, so this is correct for every model, and mlx-lm's quantised caches can be used unchanged.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer.rollout import caches, decode, table


def _prefill(model: Any, prompt: NDArray[np.int32]) -> caches.Prefilled:
    """Prefill the prompt with the model's current weights; the cache is never reused in another rollout."""
    return caches.alone(model, prompt)


def why_not(model: Any) -> str:
    """Return why a prompt's cache cannot be repeated for its samples, "" if it can."""
    loose = caches.unrepeatable(model)
    return f"rows of {', '.join(loose)} cannot be repeated" if loose else ""


def rollout(model: Any, request: table.Request) -> table.Rollout:
    """Roll out every requested row.

    Raises:
        NotImplementedError: this model's caches have no rows.
    """
    if reason := why_not(model):
        raise NotImplementedError(f"{reason}; use path 'cached', or 'auto', which then takes it")
    result = table.Rollout.empty(request, "prefix")
    prompt_of = table.prompts_of(request)
    for prompt in np.unique(prompt_of):
        group = np.flatnonzero(prompt_of == prompt)
        prefilled = caches.stored(_prefill(model, request.prompts[prompt]), request.kv_bits)
        steps = decode.Cached(model, prefilled)
        steps.keep(np.zeros(len(group), np.int64))
        last = prefilled.last[np.zeros(len(group), np.int32).tolist()]
        decode.decode(steps, last, request, result, group)
    return result
