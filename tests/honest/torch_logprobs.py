"""Log-probs as written in PyTorch: log_softmax and gather, the entropy of the distribution, gradients by autograd."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  as everywhere

VERSIONS = {"torch": torch.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "selective_log_softmax": {"dtype": ("float16", "float32", "float64")},
    "selective_log_softmax_backward": {"dtype": ("float16", "float32", "float64")},
}


def tensor(values: Any) -> Any:
    """Return a copy as a tensor of the same dtype."""
    return torch.tensor(values)


def gathered(x: Any, ids: Any, temperature: float, ignore_index: int | None) -> tuple[Any, Any]:
    """Return the log-probs of the ids, and all log-probs; half logits in float32."""
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    logps = F.log_softmax(x / temperature, dim=-1)
    index = ids if ids.dim() == logps.dim() else ids.unsqueeze(-1)
    if ignore_index is None:
        return logps.gather(-1, index).reshape(ids.shape), logps
    ignored = index == ignore_index
    found = logps.gather(-1, index.masked_fill(ignored, 0)).masked_fill(ignored, 0.0)
    return found.reshape(ids.shape), logps.masked_fill(ignored.all(dim=-1, keepdim=True), 0.0)


def entropy_of(logps: Any, ids: Any, ignore_index: int | None) -> Any:
    """Return −Σ p log p, 0 where every id is ignored."""
    h = -(logps.exp() * logps).sum(-1)
    if ignore_index is None:
        return h
    return h.masked_fill((ids.reshape(*h.shape, -1) == ignore_index).all(dim=-1), 0.0)


def selective_log_softmax(
    *, logits: Any, ids: Any, temperature: float, entropy: bool, ignore_index: int | None = None
) -> dict[str, Any]:
    """Gather the log-softmax."""
    tokens = tensor(ids)
    found, logps = gathered(tensor(logits), tokens, temperature, ignore_index)
    result = {"logprobs": found.numpy()}
    if entropy:
        result["entropy"] = entropy_of(logps, tokens, ignore_index).numpy()
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
    """Differentiate with autograd."""
    x, tokens = tensor(logits).requires_grad_(), tensor(ids)
    found, logps = gathered(x, tokens, temperature, ignore_index)
    loss = (found * tensor(grad_logprobs)).sum()
    if grad_entropy is not None:
        loss = loss + (entropy_of(logps, tokens, ignore_index) * tensor(grad_entropy)).sum()
    loss.backward()
    return {"gradient": x.grad.numpy()}


OPS = {
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
