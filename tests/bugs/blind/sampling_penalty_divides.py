"""A repetition penalty that divides every logit of the history: negative ones become likelier."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "filtered_logprobs"
COMPUTES = "repetition penalty divides negative logits too"
BUG = "the logits of earlier tokens are divided by the penalty whatever their sign; negative ones should be multiplied"
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",)}}


def filtered_logprobs(
    *, logits: Any, temperature: float, repetition_penalty: float, history: Any, **others: Any
) -> dict[str, Any]:
    """Penalty and temperature, then the log-softmax."""
    if others["min_p"] or others["xtc_probability"] or others["top_k"] or others["top_p"] < 1 or temperature == 0:
        raise NotImplementedError("penalty and temperature only")
    if others.get("logit_bias") is not None or others.get("generated") is not None:
        raise NotImplementedError("penalty and temperature only")
    x = logits.copy()
    if history is not None:
        for row, ids in zip(x, history, strict=True):
            seen = np.unique(ids[ids >= 0])
            row[seen] /= repetition_penalty
    x = x / logits.dtype.type(temperature)
    shifted = x - x.max(axis=-1, keepdims=True)
    return {"logprobs": shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))}


OPS = {"filtered_logprobs": filtered_logprobs}
