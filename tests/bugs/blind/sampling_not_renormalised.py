"""Log-probs of the whole vocabulary with the filtered tokens struck out: the survivors do not sum to 1."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "filtered_logprobs"
COMPUTES = "not renormalised over the tokens that stay"
BUG = "the survivors keep the log-probs that they had before the filters: they are not renormalised"
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",)}}


def log_softmax(x: Any) -> Any:
    """Return the log-probs of each row."""
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def filtered_logprobs(*, logits: Any, temperature: float, top_k: int, top_p: float, **others: Any) -> dict[str, Any]:
    """Temperature and log-softmax, then top-k and top-p."""
    if others["min_p"] or others["xtc_probability"] or others["repetition_penalty"] != 1 or temperature == 0:
        raise NotImplementedError("temperature, top-k and top-p only")
    if others.get("logit_bias") is not None or others.get("generated") is not None or "min_tokens_to_keep" in others:
        raise NotImplementedError("temperature, top-k and top-p only")
    x = logits / logits.dtype.type(temperature)
    keep = np.ones(x.shape, bool)
    if top_k:
        keep = x >= np.sort(x, axis=-1)[:, -min(top_k, x.shape[1]), None]
    if top_p < 1:
        left = log_softmax(np.where(keep, x, -np.inf))
        order = np.argsort(-left, axis=-1)
        p = np.exp(np.take_along_axis(left, order, axis=-1))
        within = np.empty(x.shape, bool)
        np.put_along_axis(within, order, np.cumsum(p, axis=-1) - p < top_p, axis=-1)
        keep = keep & within
    return {"logprobs": np.where(keep, log_softmax(x), -np.inf).astype(logits.dtype)}


OPS = {"filtered_logprobs": filtered_logprobs}
