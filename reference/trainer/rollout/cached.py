"""One row at a time over the model's own key-value cache: the prompt is read once, then one token at a time."""

from typing import Any

import numpy as np

from reference.trainer.rollout import caches, decode, quantised, rows, table


def rollout(model: Any, request: table.Request) -> table.Rollout:
    """The tokens of every requested row."""
    result = table.Rollout.empty(request, "cached")
    numbers = request.rows[:, 0] * request.samples + request.rows[:, 1]
    for row, (prompt, _) in enumerate(rows.prompt_of_row(numbers, len(request.prompts), request.samples)):
        prefilled = quantised.stored(caches.alone(model, request.prompts[prompt]), request.kv_bits)
        decode.decode(decode.Cached(model, prefilled), prefilled.last, request, result, np.array([row]))
    return result
