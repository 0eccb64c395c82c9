"""Filters and draws as written by hand in NumPy, in the dtype of the logits: softmax, sort, cumsum, searchsorted."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def log_softmax(x: Any) -> Any:
    """Return log p; −inf stays −inf."""
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def top_k(x: Any, k: int, least: int) -> Any:
    """Keep what is not below the k-th largest."""
    k = min(max(k, least), x.shape[-1])
    return np.where(x < np.sort(x, axis=-1)[:, -k, None], -np.inf, x).astype(x.dtype)


def top_p(x: Any, p: float, least: int) -> Any:
    """Keep tokens while the mass before them is below p."""
    order = np.argsort(-x, axis=-1)
    probabilities = np.exp(np.take_along_axis(log_softmax(x), order, axis=-1))
    before = np.cumsum(probabilities, axis=-1) - probabilities
    keep = before < p
    keep[:, :least] = True
    removed = np.ones(x.shape, bool)
    np.put_along_axis(removed, order, ~keep, axis=-1)
    return np.where(removed, -np.inf, x).astype(x.dtype)


def min_p(x: Any, share: float, least: int) -> Any:
    """Keep what has a share of the largest probability."""
    probabilities = np.exp(log_softmax(x))
    removed = probabilities < share * probabilities.max(axis=-1, keepdims=True)
    np.put_along_axis(removed, np.argsort(-x, axis=-1)[:, :least], False, axis=-1)
    return np.where(removed, -np.inf, x).astype(x.dtype)


def xtc(x: Any, threshold: float, acts: Any, special: Any) -> Any:
    """Remove what is above the threshold, but not the least likely of it."""
    probabilities = np.exp(log_softmax(x))
    above = probabilities > threshold
    least = np.where(above, probabilities, np.inf).min(axis=-1, keepdims=True)
    removed = above & (probabilities > least) & acts[:, None]
    if special is not None:
        removed[:, special] = False
    return np.where(removed, -np.inf, x).astype(x.dtype)


def processed(x: Any, filters: dict[str, Any]) -> Any:
    """Add the bias, then penalise."""
    x = x.copy()
    if filters.get("logit_bias") is not None:
        x += filters["logit_bias"].astype(x.dtype)
    if filters["repetition_penalty"] != 1.0:
        for row, ids in zip(x, filters["history"], strict=True):
            seen = np.unique(ids[ids >= 0])
            row[seen] = np.where(
                row[seen] > 0, row[seen] / filters["repetition_penalty"], row[seen] * filters["repetition_penalty"]
            )
    if filters.get("generated") is not None:
        for row, ids in zip(x, filters["generated"], strict=True):
            counts = np.bincount(ids[ids >= 0], minlength=x.shape[1])
            row[:] -= (filters.get("frequency_penalty") or 0.0) * counts.astype(x.dtype)
            row[counts > 0] -= filters.get("presence_penalty") or 0.0
    return x


def filtered_logprobs(*, logits: Any, **filters: Any) -> dict[str, Any]:
    """Run the filters in their order and take the log-softmax."""
    x, order, temperature = processed(logits, filters), filters["order"], filters["temperature"]
    if temperature == 0.0:
        first = np.argmax(x, axis=-1)[:, None] == np.arange(x.shape[1])
        return {"logprobs": np.where(first, 0.0, -np.inf).astype(x.dtype)}
    least = filters.get("min_tokens_to_keep", 1)
    of_others = least if order == "hf" else 1
    for stage in ("top_k", "top_p", "min_p", "xtc") if order == "hf" else ("top_p", "min_p", "xtc", "top_k"):
        if order == "hf" and stage == "top_k":
            x = (x / temperature).astype(x.dtype)
        if stage == "top_k" and filters["top_k"] > 0:
            x = top_k(x, filters["top_k"], of_others)
        if stage == "top_p" and filters["top_p"] < 1.0:
            x = top_p(x, filters["top_p"], of_others)
        if stage == "min_p" and filters["min_p"] > 0.0:
            x = min_p(x, filters["min_p"], least)
        if stage == "xtc" and filters["xtc_probability"] > 0.0:
            acts = filters["xtc_coin"] < filters["xtc_probability"]
            x = xtc(x, filters["xtc_threshold"], acts, filters.get("xtc_special_tokens"))
    return {"logprobs": log_softmax(x / logits.dtype.type(temperature) if order == "mlx-lm" else x)}


def sample_tokens(*, uniforms: Any, **inputs: Any) -> dict[str, Any]:
    """Look every uniform up in the running sums of its row."""
    logprobs = filtered_logprobs(**inputs)["logprobs"]
    sums = np.cumsum(np.exp(logprobs), axis=-1)
    tokens = np.array([np.searchsorted(row, u * row[-1], side="right") for row, u in zip(sums, uniforms, strict=True)])
    return {"tokens": tokens, "logprobs": np.take_along_axis(logprobs, tokens[:, None], axis=-1)[:, 0]}


OPS = {"filtered_logprobs": filtered_logprobs, "sample_tokens": sample_tokens}
