"""Roll out one row at a time over the model's own key-value cache."""

from typing import Any

import numpy as np

from gates_reference.trainer.rollout import caches, decode, table


def rollout(model: Any, request: table.Request) -> table.Rollout:
    """Roll out every requested row."""
    result = table.Rollout.empty(request, "cached")
    for row, prompt in enumerate(table.prompts_of(request)):
        prefilled = caches.stored(caches.alone(model, request.prompts[prompt]), request.kv_bits)
        decode.decode(decode.Cached(model, prefilled), prefilled.last, request, result, np.array([row]))
    return result
