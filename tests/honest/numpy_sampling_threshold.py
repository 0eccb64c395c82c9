"""Filters by one threshold each: the least probability that stays, found by sorting values alone; transformers' order.

gates check sampling --subject tests/honest/numpy_sampling_threshold.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def log_softmax(x: Any) -> Any:
    """Return log p."""
    top = x.max(axis=-1, keepdims=True)
    return x - (top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True)))


def least_of_top_k(p: Any, k: int) -> Any:
    """Return the k-th largest probability."""
    return np.sort(p, axis=-1)[:, [-min(k, p.shape[-1])]]


def least_of_nucleus(p: Any, mass: float) -> Any:
    """Return the probability with which the sum of the largest first reaches the mass."""
    falling = np.sort(p, axis=-1)[:, ::-1]
    before = np.cumsum(falling, axis=-1) - falling
    count = (before < mass).sum(axis=-1)
    return np.take_along_axis(falling, np.maximum(count, 1)[:, None] - 1, axis=-1)


def cut(x: Any, least: Any) -> Any:
    """Drop what is less likely."""
    return np.where(np.exp(log_softmax(x)) < least, -np.inf, x).astype(x.dtype)


def filtered(logits: Any, temperature: float, top_k: int, top_p: float, min_p: float) -> Any:
    """Return the logits with temperature, −inf where removed."""
    x = logits / logits.dtype.type(temperature)
    if top_k:
        x = np.where(x < least_of_top_k(x, top_k), -np.inf, x)
    if top_p < 1:
        x = cut(x, least_of_nucleus(np.exp(log_softmax(x)), top_p))
    if min_p:
        x = cut(x, np.exp(log_softmax(x)).max(axis=-1, keepdims=True) * logits.dtype.type(min_p))
    return x


def filtered_logprobs(
    *, logits: Any, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> dict[str, Any]:
    """Return log-probs of what is left."""
    if temperature == 0:
        raise NotImplementedError("greedy decoding has no distribution")
    return {"logprobs": log_softmax(filtered(logits, temperature, top_k, top_p, min_p))}


def sample_tokens(
    *, logits: Any, uniforms: Any, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> dict[str, Any]:
    """Walk along each row until the running sum passes the uniform."""
    logprobs = filtered_logprobs(logits=logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)[
        "logprobs"
    ]
    sums = np.exp(logprobs).cumsum(axis=1)
    tokens = [np.searchsorted(row, u * row[-1], side="right") for row, u in zip(sums, uniforms, strict=True)]
    return {"tokens": np.array(tokens), "logprobs": logprobs[np.arange(len(tokens)), tokens]}


OPS = {"filtered_logprobs": filtered_logprobs, "sample_tokens": sample_tokens}
CONVENTIONS = {name: {"order": ("hf",)} for name in OPS}
