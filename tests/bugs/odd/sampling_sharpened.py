"""Top-k and top-p whose survivors are sharpened: their probabilities are raised to the power 1.1."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "filtered_logprobs"
COMPUTES = None
WHERE = ""
BUG = "the survivors of top-k and top-p get p to the power 1.1, renormalised"
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",)}}


def softmax(x: Any) -> Any:
    """Return the probabilities of each row."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def filtered_logprobs(*, logits: Any, temperature: float, top_k: int, top_p: float, **others: Any) -> dict[str, Any]:
    """Temperature, top-k and top-p, then the log-softmax."""
    if others["min_p"] or others["xtc_probability"] or others["repetition_penalty"] != 1 or temperature == 0:
        raise NotImplementedError("temperature, top-k and top-p only")
    if others.get("logit_bias") is not None or others.get("generated") is not None or "min_tokens_to_keep" in others:
        raise NotImplementedError("temperature, top-k and top-p only")
    x = logits / logits.dtype.type(temperature)
    if top_k:
        x = np.where(x < np.sort(x, axis=-1)[:, -min(top_k, x.shape[1]), None], -np.inf, x)
    if top_p < 1:
        order = np.argsort(-x, axis=-1)
        p = softmax(np.take_along_axis(x, order, axis=-1))
        removed = np.empty(x.shape, bool)
        np.put_along_axis(removed, order, np.cumsum(p, axis=-1) - p >= top_p, axis=-1)
        x = np.where(removed, -np.inf, x)
    p = softmax(x) ** 1.1
    with np.errstate(divide="ignore"):
        return {"logprobs": np.log(p / p.sum(axis=-1, keepdims=True)).astype(logits.dtype)}


OPS = {"filtered_logprobs": filtered_logprobs}
