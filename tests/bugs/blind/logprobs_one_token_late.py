"""Log-probs whose ids are shifted once more: position t scores the token after its own."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "selective_log_softmax"
COMPUTES = "ids shifted by one position to the left"
BUG = "the ids are moved by one position along the sequence, so that each row of logits scores the next token's id"
CONVENTIONS = {"selective_log_softmax": {"dtype": ("float32", "float64"), "ids_per_position": (), "ignore_index": ()}}


def selective_log_softmax(*, logits: Any, ids: Any, temperature: float, entropy: bool) -> dict[str, Any]:
    """Gather log p at the ids that follow."""
    if entropy:
        raise NotImplementedError("log-probs only")
    scaled = logits / logits.dtype.type(temperature)
    shifted = scaled - scaled.max(axis=-1, keepdims=True)
    logps = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    labels = np.roll(ids, -1, axis=-1)
    return {"logprobs": np.take_along_axis(logps, labels[..., None], axis=-1)[..., 0]}


OPS = {"selective_log_softmax": selective_log_softmax}
