"""A group at a time: its prompt is prefilled once and alone, and the cache repeated for its samples.

No row is padded, so this is right for every model, and mlx-lm's quantised caches can be used as they are.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.trainer.rollout import caches, decode, quantised, rows, table


def _prefill(model: Any, prompt: NDArray[np.int32]) -> caches.Prefilled:
    """The prompt's cache, made with the weights that the model has now; never kept for another rollout."""
    return caches.alone(model, prompt)


def rollout(model: Any, request: table.Request) -> table.Rollout:
    """The tokens of every requested row."""
    result = table.Rollout.empty(request, "prefix")
    numbers = request.rows[:, 0] * request.samples + request.rows[:, 1]
    prompt_of = rows.prompt_of_row(numbers, len(request.prompts), request.samples)[:, 0]
    for prompt in np.unique(prompt_of):
        group = np.flatnonzero(prompt_of == prompt)
        prefilled = quantised.stored(_prefill(model, request.prompts[prompt]), request.kv_bits)
        steps = decode.Cached(model, prefilled)
        steps.keep(np.zeros(len(group), np.int64))
        last = prefilled.last[np.zeros(len(group), np.int32).tolist()]
        decode.decode(steps, last, request, result, group)
    return result
