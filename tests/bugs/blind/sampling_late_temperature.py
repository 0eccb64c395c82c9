"""Filters of untempered logits, and the temperature last: transformers divides first."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "filtered_logprobs"
COMPUTES = "filters in the order top-p, temperature"
BUG = "the temperature is applied after top-k, top-p and min-p, where the order hf applies it before them"
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",)}}


def softmax(x: Any) -> Any:
    """Return the probabilities of each row."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def filtered_logprobs(
    *, logits: Any, temperature: float, top_k: int, top_p: float, min_p: float, **others: Any
) -> dict[str, Any]:
    """Top-k, top-p, min-p and temperature, then the log-softmax."""
    if others["xtc_probability"] or others["repetition_penalty"] != 1 or temperature == 0:
        raise NotImplementedError("temperature, top-k, top-p and min-p only")
    if others.get("logit_bias") is not None or others.get("generated") is not None or "min_tokens_to_keep" in others:
        raise NotImplementedError("temperature, top-k, top-p and min-p only")
    x = logits
    if top_k:
        x = np.where(x < np.sort(x, axis=-1)[:, -min(top_k, x.shape[1]), None], -np.inf, x)
    if top_p < 1:
        order = np.argsort(-x, axis=-1)
        p = softmax(np.take_along_axis(x, order, axis=-1))
        removed = np.empty(x.shape, bool)
        np.put_along_axis(removed, order, np.cumsum(p, axis=-1) - p >= top_p, axis=-1)
        x = np.where(removed, -np.inf, x)
    if min_p:
        p = softmax(x)
        x = np.where(p < min_p * p.max(axis=-1, keepdims=True), -np.inf, x)
    with np.errstate(divide="ignore"):
        return {"logprobs": np.log(softmax(x / logits.dtype.type(temperature))).astype(logits.dtype)}


OPS = {"filtered_logprobs": filtered_logprobs}
