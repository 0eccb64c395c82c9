"""Filters by another hand in NumPy: probabilities set to 0 and renormalised after every filter, as SGLang and vLLM do."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def softmax(x: Any) -> Any:
    """Return p."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def only(p: Any, keep: Any) -> Any:
    """Set the others to 0 and renormalise."""
    kept = np.where(keep, p, 0).astype(p.dtype)
    return kept / kept.sum(axis=-1, keepdims=True)


def ranks(p: Any) -> Any:
    """Return how many tokens are likelier than each, the lower id first among equals."""
    order = np.argsort(-p, axis=-1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.broadcast_to(np.arange(p.shape[-1]), p.shape), axis=-1)
    return places


def nucleus(p: Any, mass: float, least: int) -> Any:
    """Keep the tokens whose running sum, less their own probability, has not reached the mass."""
    falling = -np.sort(-p, axis=-1)
    count = 1 + ((np.cumsum(falling, axis=-1) - falling)[:, 1:] < p.dtype.type(mass)).sum(axis=-1)
    return only(p, ranks(p) < np.maximum(count, least)[:, None])


def without_likeliest(p: Any, threshold: float, acts: Any, special: Any) -> Any:
    """Remove all above the threshold but the least likely of them."""
    above = p > p.dtype.type(threshold)
    bound = np.where(above, p, np.inf).min(axis=-1, keepdims=True)
    removed = above & (p > bound) & np.asarray(acts)[:, None]
    if special is not None:
        removed[:, special] = False
    return only(p, ~removed)


def probabilities(logits: Any, filters: dict[str, Any]) -> Any:
    """Return the distribution after all filters."""
    if filters.get("logit_bias") is not None or filters.get("generated") is not None:
        raise NotImplementedError("no bias, no penalties of counts")
    x, order, least = logits.copy(), filters["order"], filters.get("min_tokens_to_keep", 1)
    if filters["repetition_penalty"] != 1.0:
        seen = np.zeros((len(x), x.shape[1] + 1), bool)
        np.put_along_axis(seen, filters["history"], True, axis=1)  # −1 is the last column
        factor = x.dtype.type(filters["repetition_penalty"])
        x = np.where(seen[:, :-1], np.where(x > 0, x / factor, x * factor), x)
    temperature = x.dtype.type(filters["temperature"])
    p = softmax(x / temperature if order == "hf" else x)
    for stage in ("k", "p", "m", "x") if order == "hf" else ("p", "m", "x", "k"):
        if stage == "k" and 0 < filters["top_k"] < p.shape[1]:
            p = only(p, ranks(p) < max(filters["top_k"], least if order == "hf" else 1))
        if stage == "p" and filters["top_p"] < 1.0:
            p = nucleus(p, filters["top_p"], least if order == "hf" else 1)
        if stage == "m" and filters["min_p"] > 0.0:
            p = only(p, (p >= p.max(axis=-1, keepdims=True) * p.dtype.type(filters["min_p"])) | (ranks(p) < least))
        if stage == "x" and filters["xtc_probability"] > 0.0:
            acts = filters["xtc_coin"] < filters["xtc_probability"]
            p = without_likeliest(p, filters["xtc_threshold"], acts, filters.get("xtc_special_tokens"))
    if order == "mlx-lm" and temperature != 1.0:
        p = p ** (1 / temperature)
        p /= p.sum(axis=-1, keepdims=True)
    return p


def filtered_logprobs(*, logits: Any, **filters: Any) -> dict[str, Any]:
    """Return the logarithm of what is left."""
    with np.errstate(divide="ignore"):
        return {"logprobs": np.log(probabilities(logits, filters))}


def sample_tokens(*, logits: Any, uniforms: Any, **filters: Any) -> dict[str, Any]:
    """Count the running sums that a uniform has passed."""
    if filters["temperature"] == 0.0:
        raise NotImplementedError("no greedy draws")
    p = probabilities(logits, filters)
    sums = np.cumsum(p, axis=-1)
    tokens = (sums <= uniforms.astype(p.dtype)[:, None] * sums[:, -1:]).sum(axis=-1)
    return {"tokens": tokens, "logprobs": np.log(np.take_along_axis(p, tokens[:, None], axis=-1)[:, 0])}


OPS = {"filtered_logprobs": filtered_logprobs, "sample_tokens": sample_tokens}
