"""Filters as transformers writes its logits warpers, and a draw from the running sum, in PyTorch; its order only."""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = {"torch": torch.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"order": ("hf",)} for name in ("filtered_logprobs", "sample_tokens")
}
NOTHING = -float("inf")


def penalised(scores: Any, history: Any, penalty: float) -> Any:
    """Divide positive scores of earlier tokens, multiply negative ones."""
    rows = []
    for row, ids in zip(scores, history, strict=True):
        seen = torch.unique(ids[ids >= 0])
        score = torch.gather(row, 0, seen)
        rows.append(row.scatter(0, seen, torch.where(score < 0, score * penalty, score / penalty)))
    return torch.stack(rows)


def top_k(scores: Any, k: int, least: int) -> Any:
    """Remove all tokens with a score less than the last token of the top-k."""
    k = min(max(k, least), scores.size(-1))
    return scores.masked_fill(scores < torch.topk(scores, k)[0][..., -1, None], NOTHING)


def top_p(scores: Any, p: float, least: int) -> Any:
    """Remove the tail whose mass, from the least likely token on, is at most 1 − p."""
    ascending, indices = torch.sort(scores, descending=False)
    mass = ascending.softmax(dim=-1).cumsum(dim=-1)
    removed = mass <= (1 - p)
    removed[..., -least:] = 0
    return scores.masked_fill(removed.scatter(1, indices, removed), NOTHING)


def min_p(scores: Any, share: float, least: int) -> Any:
    """Remove tokens below a share of the largest probability."""
    probs = torch.softmax(scores, dim=-1)
    removed = probs < share * probs.amax(dim=-1, keepdim=True)
    kept = torch.topk(probs, min(least, probs.shape[-1]), dim=-1).indices
    removed.scatter_(-1, kept, False)
    return scores.masked_fill(removed, NOTHING)


def filtered(logits: Any, filters: dict[str, Any]) -> Any:
    """Run the processors of `generate()`."""
    if filters["xtc_probability"] or any(filters.get(n) is not None for n in ("logit_bias", "generated")):
        raise NotImplementedError("transformers has none of these")
    scores, least = torch.tensor(logits), filters.get("min_tokens_to_keep", 1)
    if filters["repetition_penalty"] != 1.0:
        scores = penalised(scores, torch.tensor(filters["history"]), filters["repetition_penalty"])
    if filters["temperature"] == 0.0:
        first = torch.argmax(scores, dim=-1, keepdim=True)
        return torch.full_like(scores, NOTHING).scatter(1, first, 0.0)
    scores = scores / filters["temperature"]
    if filters["top_k"]:
        scores = top_k(scores, filters["top_k"], least)
    if filters["top_p"] < 1.0:
        scores = top_p(scores, filters["top_p"], least)
    if filters["min_p"]:
        scores = min_p(scores, filters["min_p"], least)
    return torch.log_softmax(scores, dim=-1)


def filtered_logprobs(*, logits: Any, **filters: Any) -> dict[str, Any]:
    """Log-softmax of the scores that the warpers leave."""
    return {"logprobs": filtered(logits, filters).numpy()}


def sample_tokens(*, logits: Any, uniforms: Any, **filters: Any) -> dict[str, Any]:
    """Look every uniform up in the running sums of its row, in the dtype of the logits."""
    logprobs = filtered(logits, filters)
    sums = logprobs.exp().cumsum(dim=-1)
    wanted = torch.tensor(uniforms).to(sums.dtype)[:, None] * sums[:, -1:]
    tokens = torch.searchsorted(sums, wanted, right=True)
    return {"tokens": tokens[:, 0].numpy(), "logprobs": logprobs.gather(1, tokens)[:, 0].numpy()}


OPS = {"filtered_logprobs": filtered_logprobs, "sample_tokens": sample_tokens}
