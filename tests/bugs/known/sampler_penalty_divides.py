"""A repetition penalty that divides every logit of the history; negative ones grow likelier."""

from __future__ import annotations

from typing import Any

import numpy as np


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
    history: Any,
    **more: Any,
) -> dict[str, Any]:
    if order != "hf" or top_p < 1 or min_p or xtc_probability or not temperature or more.get("min_tokens_to_keep"):
        raise NotImplementedError
    scores = logits.astype(np.float64)
    if repetition_penalty != 1:
        for row, ids in zip(scores, history, strict=True):
            seen = np.unique(ids[ids >= 0])
            row[seen] /= repetition_penalty
    scores /= temperature
    if top_k:
        k = min(top_k, scores.shape[1])
        threshold = np.partition(scores, -k, axis=1)[:, -k]
        scores[scores < threshold[:, None]] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    return {"logprobs": scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))}


OPS = {"filtered_logprobs": filtered_logprobs}
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",)}}
COMPUTES = "repetition penalty divides negative logits too"
