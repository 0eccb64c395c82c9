"""Log-probs of logits that were sampled at a temperature and are scored at 1."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "selective_log_softmax"
COMPUTES = "the temperature ignored"
BUG = "the temperature is ignored"
CONVENTIONS = {"selective_log_softmax": {"dtype": ("float32", "float64"), "ids_per_position": (), "ignore_index": ()}}


def selective_log_softmax(*, logits: Any, ids: Any, temperature: float, entropy: bool) -> dict[str, Any]:
    """Gather log p at the ids."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logps = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    result = {"logprobs": np.take_along_axis(logps, ids[..., None], axis=-1)[..., 0]}
    if entropy:
        result["entropy"] = -(np.exp(logps) * logps).sum(axis=-1)
    return result


OPS = {"selective_log_softmax": selective_log_softmax}
