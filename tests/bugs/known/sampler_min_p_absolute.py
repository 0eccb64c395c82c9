"""mlx-lm's order of filters; min-p is compared with the probability itself, not with that of the likeliest token."""

from __future__ import annotations

from typing import Any

import numpy as np


def log_softmax(x: Any) -> Any:
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))


def top_p_mask(logprobs: Any, top_p: Any) -> Any:
    order = np.argsort(logprobs, axis=-1)
    ascending = np.cumsum(np.take_along_axis(np.exp(logprobs), order, axis=-1), axis=-1)
    keep = np.zeros(logprobs.shape, bool)
    np.put_along_axis(keep, order, ascending > 1 - top_p, axis=-1)
    keep[np.arange(len(keep)), order[:, -1]] = True
    return keep


def filtered_logprobs(logits: Any, **given: Any) -> dict[str, Any]:
    if given["order"] != "mlx-lm" or given["temperature"] == 0:
        raise NotImplementedError
    if given["xtc_probability"] or given["repetition_penalty"] != 1 or given.get("generated") is not None:
        raise NotImplementedError
    if given.get("min_tokens_to_keep") or given.get("xtc_special_tokens") is not None:
        raise NotImplementedError
    lp = log_softmax(logits)
    if given["top_p"] < 1:
        lp = log_softmax(np.where(top_p_mask(lp, given["top_p"]), lp, -np.inf))
    if given["min_p"] > 0:
        keep = np.exp(lp) >= given["min_p"]
        keep |= lp == lp.max(axis=-1, keepdims=True)
        lp = log_softmax(np.where(keep, lp, -np.inf))
    if 0 < given["top_k"] < lp.shape[1]:
        kth = np.partition(lp, -given["top_k"], axis=-1)[:, -given["top_k"], None]
        lp = np.where(lp < kth, -np.inf, lp)
    return {"logprobs": log_softmax(lp / given["temperature"])}


OPS = {"filtered_logprobs": filtered_logprobs}
CONVENTIONS = {"filtered_logprobs": {"order": ("mlx-lm",), "arithmetic": ("float32",)}}
COMPUTES = "min-p as an absolute probability"
