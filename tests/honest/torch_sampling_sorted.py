"""Filters on the sorted distribution, whose ids are gathered at the end, as small inference engines write them.

gates check sampling --subject tests/honest/torch_sampling_sorted.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def sorted_filter(logits: Any, top_k: int, top_p: float, min_p: float) -> tuple[Any, Any]:
    """Return falling probabilities with 0 where a filter removes, and their ids."""
    probs, ids = torch.softmax(logits, dim=-1).sort(dim=-1, descending=True, stable=True)
    if top_k:
        probs[:, top_k:] = 0.0
        probs = probs / probs.sum(dim=-1, keepdim=True)
    if top_p < 1.0:
        before = probs.cumsum(dim=-1) - probs
        probs = torch.where(before >= top_p, 0.0, probs)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    if min_p > 0.0:
        probs = torch.where(probs < min_p * probs[:, :1], 0.0, probs)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return probs, ids


def filtered_logprobs(
    *, logits: Any, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> dict[str, Any]:
    """Return the logarithms in the order of the ids."""
    scores = torch.tensor(logits)
    if temperature == 0.0:
        best = torch.zeros_like(scores).scatter_(1, scores.argmax(dim=1, keepdim=True), 1.0)
        return {"logprobs": best.log().numpy()}
    probs, ids = sorted_filter(scores / temperature, top_k, top_p, min_p)
    return {"logprobs": torch.zeros_like(probs).scatter_(1, ids, probs).log().numpy()}


OPS = {"filtered_logprobs": filtered_logprobs}
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",)}}
