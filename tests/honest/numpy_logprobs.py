"""Log-probs as written by hand in NumPy, in the dtype of the logits: scipy's log-softmax and the analytic gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def log_softmax(x: Any) -> Any:
    """Return log p of the last axis."""
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def in_single(logits: Any) -> Any:
    """Return half logits in float32, others as they are."""
    return logits.astype(np.float32) if logits.dtype == np.float16 else logits


def chosen(ids: Any, rows: Any, ignore_index: int | None) -> tuple[Any, Any]:
    """Return the ids as (…, K), 0 where one is ignored, and which are not."""
    tokens = ids.reshape(*rows, -1)
    counts = np.ones(tokens.shape, bool) if ignore_index is None else tokens != ignore_index
    return np.where(counts, tokens, 0), counts


def selective_log_softmax(
    *, logits: Any, ids: Any, temperature: float, entropy: bool, ignore_index: int | None = None
) -> dict[str, Any]:
    """Gather log p at the ids; H = −Σ p log p."""
    logps = log_softmax(in_single(logits) / temperature)
    tokens, counts = chosen(ids, logits.shape[:-1], ignore_index)
    found = np.where(counts, np.take_along_axis(logps, tokens, axis=-1), 0.0).reshape(ids.shape)
    result = {"logprobs": found.astype(logps.dtype)}
    if entropy:
        h = -(np.exp(logps) * logps).sum(axis=-1)
        result["entropy"] = np.where(counts.any(axis=-1), h, 0.0).astype(logps.dtype)
    return result


def selective_log_softmax_backward(
    *,
    logits: Any,
    ids: Any,
    grad_logprobs: Any,
    temperature: float,
    grad_entropy: Any,
    ignore_index: int | None = None,
) -> dict[str, Any]:
    """(Σ g (onehot − p) − g_H p (log p + H)) / τ."""
    logps = log_softmax(in_single(logits) / temperature)
    p = np.exp(logps)
    tokens, counts = chosen(ids, logits.shape[:-1], ignore_index)
    g = np.where(counts, grad_logprobs.reshape(tokens.shape), 0.0).astype(p.dtype)
    gradient = -p * g.sum(axis=-1, keepdims=True)
    for k in range(tokens.shape[-1]):
        at = tokens[..., k : k + 1]
        np.put_along_axis(gradient, at, np.take_along_axis(gradient, at, axis=-1) + g[..., k : k + 1], axis=-1)
    if grad_entropy is not None:
        h = -(p * logps).sum(axis=-1, keepdims=True)
        gradient -= np.where(counts.any(axis=-1), grad_entropy, 0.0)[..., None] * p * (logps + h)
    return {"gradient": (gradient / temperature).astype(logits.dtype)}


OPS = {
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
