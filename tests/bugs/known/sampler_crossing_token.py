"""transformers' filters in NumPy; the sorted top-p mask is not shifted, so the token that crosses p is dropped."""

from __future__ import annotations

from typing import Any

import numpy as np


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def filtered_logprobs(
    logits: Any,
    *,
    order: Any,
    temperature: Any,
    top_k: Any,
    top_p: Any,
    min_p: Any,
    xtc_probability: Any,
    repetition_penalty: Any,
    **more: Any,
) -> dict[str, Any]:
    if (
        order != "hf"
        or temperature == 0
        or xtc_probability
        or repetition_penalty != 1
        or any(more.get(k) for k in MORE)
    ):
        raise NotImplementedError
    x = (logits / temperature).astype(logits.dtype)
    if top_k:
        kth = np.sort(x, -1)[:, [-min(top_k, x.shape[1])]]
        x = np.where(x < kth, -np.inf, x)
    if top_p < 1:
        index = np.argsort(-x, -1)
        drop = np.cumsum(softmax(np.take_along_axis(x, index, -1)), -1) > top_p
        drop[:, 0] = False
        mask = np.zeros_like(drop)
        np.put_along_axis(mask, index, drop, -1)
        x = np.where(mask, -np.inf, x)
    if min_p:
        p = softmax(x)
        x = np.where(p < min_p * p.max(-1, keepdims=True), -np.inf, x)
    m = x.max(-1, keepdims=True)
    return {"logprobs": x - m - np.log(np.exp(x - m).sum(-1, keepdims=True))}


MORE = ("presence_penalty", "frequency_penalty", "min_tokens_to_keep")
OPS = {"filtered_logprobs": filtered_logprobs}
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",), "arithmetic": ("float32",)}}
COMPUTES = "top-p without the token whose mass reaches p"
