"""Log-probs of logits that are clamped to plus and minus 5 first, against overflow."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "selective_log_softmax"
COMPUTES = None
WHERE = ""
BUG = "logits are clamped to [-5, 5] before the softmax"
CONVENTIONS = {"selective_log_softmax": {"dtype": ("float32", "float64"), "ids_per_position": (), "ignore_index": ()}}


def selective_log_softmax(*, logits: Any, ids: Any, temperature: float, entropy: bool) -> dict[str, Any]:
    """Gather log p at the ids."""
    if entropy:
        raise NotImplementedError("log-probs only")
    scaled = np.clip(logits, -5, 5) / logits.dtype.type(temperature)
    shifted = scaled - scaled.max(axis=-1, keepdims=True)
    logps = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return {"logprobs": np.take_along_axis(logps, ids[..., None], axis=-1)[..., 0]}


OPS = {"selective_log_softmax": selective_log_softmax}
