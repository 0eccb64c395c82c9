"""Top-p that removes the token which crosses p: the shift to the right was forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "filtered_logprobs"
COMPUTES = "top-p without the token whose mass reaches p"
BUG = "top-p removes every token at which the running sum exceeds p, the one that crosses it included"
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
        remove = np.cumsum(softmax(np.take_along_axis(x, order, axis=-1)), axis=-1) > top_p
        remove[:, 0] = False
        removed = np.empty_like(remove)
        np.put_along_axis(removed, order, remove, axis=-1)
        x = np.where(removed, -np.inf, x)
    with np.errstate(divide="ignore"):
        return {"logprobs": np.log(softmax(x)).astype(logits.dtype)}


OPS = {"filtered_logprobs": filtered_logprobs}
