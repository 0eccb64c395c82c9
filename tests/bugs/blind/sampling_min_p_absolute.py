"""Min-p as a plain threshold on the probability, not relative to the likeliest token."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "filtered_logprobs"
COMPUTES = "min-p as an absolute probability"
BUG = "tokens below min_p itself are removed, where the threshold is min_p times the largest probability"
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",)}}


def softmax(x: Any) -> Any:
    """Return the probabilities of each row."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def filtered_logprobs(*, logits: Any, temperature: float, min_p: float, **others: Any) -> dict[str, Any]:
    """Temperature and min-p, then the log-softmax."""
    if others["top_k"] or others["top_p"] < 1 or others["xtc_probability"] or temperature == 0:
        raise NotImplementedError("temperature and min-p only")
    if others["repetition_penalty"] != 1 or others.get("logit_bias") is not None or others.get("generated") is not None:
        raise NotImplementedError("temperature and min-p only")
    if "min_tokens_to_keep" in others:
        raise NotImplementedError("temperature and min-p only")
    p = softmax(logits / logits.dtype.type(temperature))
    remove = (p < min_p) & (p < p.max(axis=-1, keepdims=True))
    p = np.where(remove, 0, p)
    with np.errstate(divide="ignore"):
        return {"logprobs": np.log(p / p.sum(axis=-1, keepdims=True)).astype(logits.dtype)}


OPS = {"filtered_logprobs": filtered_logprobs}
