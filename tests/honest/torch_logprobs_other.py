"""Log-probs by other hands in PyTorch: TRL's logits less logsumexp, verl's entropy, cross_entropy for ignored ids."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  as everywhere

VERSIONS = {"torch": torch.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"dtype": ("float32", "float64"), "ids_per_position": ()}
    for name in ("selective_log_softmax", "selective_log_softmax_backward")
}


def scores(logits: Any, ids: Any, temperature: float, ignore_index: int | None) -> Any:
    """x[id] − log Σ exp x; with ignored ids the negative cross-entropy."""
    x = logits / temperature
    if ignore_index is not None:
        flat = F.cross_entropy(x.reshape(-1, x.shape[-1]), ids.reshape(-1), ignore_index=ignore_index, reduction="none")
        return -flat.reshape(ids.shape)
    selected = torch.gather(x, dim=-1, index=ids.unsqueeze(-1)).squeeze(-1)
    return selected - torch.logsumexp(x, dim=-1)


def uncertainty(logits: Any, ids: Any, temperature: float, ignore_index: int | None) -> Any:
    """Log Σ exp x − Σ p x."""
    x = logits / temperature
    h = torch.logsumexp(x, dim=-1) - (torch.softmax(x, dim=-1) * x).sum(dim=-1)
    return h if ignore_index is None else torch.where(ids == ignore_index, torch.zeros_like(h), h)


def selective_log_softmax(
    *, logits: Any, ids: Any, temperature: float, entropy: bool, ignore_index: int | None = None
) -> dict[str, Any]:
    """Log-probs, and the entropy beside them."""
    x, tokens = torch.tensor(logits), torch.tensor(ids)
    found = {"logprobs": scores(x, tokens, temperature, ignore_index).numpy()}
    if entropy:
        found["entropy"] = uncertainty(x, tokens, temperature, ignore_index).numpy()
    return found


def selective_log_softmax_backward(
    *,
    logits: Any,
    ids: Any,
    grad_logprobs: Any,
    temperature: float,
    grad_entropy: Any,
    ignore_index: int | None = None,
) -> dict[str, Any]:
    """Differentiate with autograd, the two losses in turn."""
    x, tokens = torch.tensor(logits).requires_grad_(), torch.tensor(ids)
    scores(x, tokens, temperature, ignore_index).backward(torch.tensor(grad_logprobs))
    if grad_entropy is not None:
        uncertainty(x, tokens, temperature, ignore_index).backward(torch.tensor(grad_entropy))
    return {"gradient": x.grad.numpy()}


OPS = {
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
