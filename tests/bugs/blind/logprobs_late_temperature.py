"""Log-probs that are divided by the temperature after the softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "selective_log_softmax"
COMPUTES = "the temperature after the softmax"
BUG = "the log-probs of temperature 1 are divided by the temperature: they are not normalised"
CONVENTIONS = {"selective_log_softmax": {"dtype": ("float32", "float64"), "ids_per_position": (), "ignore_index": ()}}


def selective_log_softmax(*, logits: Any, ids: Any, temperature: float, entropy: bool) -> dict[str, Any]:
    """Gather log p at the ids."""
    if entropy:
        raise NotImplementedError("log-probs only")
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logps = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    chosen = np.take_along_axis(logps, ids[..., None], axis=-1)[..., 0]
    return {"logprobs": chosen / logits.dtype.type(temperature)}


OPS = {"selective_log_softmax": selective_log_softmax}
