"""mlx-lm's own filters and penalties, in its order, and a draw from the running sum."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm import sample_utils as filters_of

VERSIONS = {"mlx": mx.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"order": ("mlx-lm",), "arithmetic": ("float32",)} for name in ("filtered_logprobs", "sample_tokens")
}


def processed(logits: mx.array, filters: dict[str, Any]) -> mx.array:
    """Run the logits processors of `make_logits_processors`, row by row."""
    bias = filters.get("logit_bias")
    if bias is not None:
        logits = logits + mx.array(bias.astype(np.float32))
    rows = []
    for index in range(logits.shape[0]):
        row = logits[index : index + 1]
        if filters["repetition_penalty"] != 1.0:
            penalise = filters_of.make_repetition_penalty(filters["repetition_penalty"], 1000)
            row = penalise(mx.array(_real(filters["history"][index])), row)
        if filters.get("generated") is not None:
            tokens = mx.array(_real(filters["generated"][index]))
            row = filters_of.make_presence_penalty(filters.get("presence_penalty") or 0.0, 1000)(tokens, row)
            row = filters_of.make_frequency_penalty(filters.get("frequency_penalty") or 0.0, 1000)(tokens, row)
        rows.append(row)
    return mx.concatenate(rows)


def _real(ids: Any) -> Any:
    return ids[ids >= 0]


def filtered(filters: dict[str, Any]) -> mx.array:
    """Take the log-probs, run the sampler's chain, and normalise at the temperature."""
    logits = processed(mx.array(filters["logits"]), filters)
    if filters["temperature"] == 0.0:
        first = mx.argmax(logits, axis=-1, keepdims=True) == mx.arange(logits.shape[-1])
        return mx.where(first, 0.0, -mx.inf)
    x = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    if 0 < filters["top_p"] < 1.0:
        x = filters_of.apply_top_p(x, filters["top_p"])
    if filters["min_p"] != 0.0:
        x = filters_of.apply_min_p(x, filters["min_p"], filters.get("min_tokens_to_keep", 1))
    if filters["xtc_probability"] > 0.0:
        special = filters.get("xtc_special_tokens")
        acts = mx.array(filters["xtc_coin"] < filters["xtc_probability"])[:, None]
        cut = filters_of.apply_xtc(x, 1.0, filters["xtc_threshold"], [] if special is None else special.tolist())
        x = mx.where(acts, cut, x)
    if 0 < filters["top_k"] < x.shape[-1]:
        x = filters_of.apply_top_k(x, filters["top_k"])
    x = x * (1.0 / filters["temperature"])
    return x - mx.logsumexp(x, axis=-1, keepdims=True)


def filtered_logprobs(**filters: Any) -> dict[str, Any]:
    """Log-probs of what the chain leaves."""
    return {"logprobs": np.array(filtered(filters))}


def sample_tokens(*, uniforms: Any, **filters: Any) -> dict[str, Any]:
    """Count the running sums that a uniform has passed."""
    logprobs = filtered(filters)
    sums = mx.cumsum(mx.exp(logprobs), axis=-1)
    tokens = (sums <= mx.array(uniforms.astype(np.float32))[:, None] * sums[:, -1:]).sum(axis=-1)
    found = mx.take_along_axis(logprobs, tokens[:, None], axis=-1)[:, 0]
    return {"tokens": np.array(tokens).astype(np.int64), "logprobs": np.array(found)}


OPS = {"filtered_logprobs": filtered_logprobs, "sample_tokens": sample_tokens}
