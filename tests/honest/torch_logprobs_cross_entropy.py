"""Log-probs as −cross_entropy with ignored labels, the entropy as logsumexp − Σ p·x, and autograd's gradient.

gates check logprobs --subject tests/honest/torch_logprobs_cross_entropy.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def entropy_from_logits(logits: Any) -> Any:
    """Return logsumexp(x) − Σ softmax(x)·x."""
    p = torch.softmax(logits, dim=-1)
    return torch.logsumexp(logits, dim=-1) - torch.sum(p * logits.masked_fill(p == 0, 0.0), dim=-1)


def scored(logits: Any, ids: Any, temperature: float, ignore_index: Any) -> tuple[Any, Any]:
    """Return the log-probs of labels, and the tempered logits."""
    if ids.ndim == logits.ndim:
        raise NotImplementedError("one label for each position")
    scaled = logits.float() / temperature if logits.dtype == torch.float16 else logits / temperature
    labels = torch.tensor(ids).reshape(-1)
    ignored = -100 if ignore_index is None else ignore_index
    losses = functional.cross_entropy(
        scaled.reshape(-1, scaled.shape[-1]), labels, reduction="none", ignore_index=ignored
    )
    return -losses.reshape(ids.shape), scaled


def selective_log_softmax(
    *, logits: Any, ids: Any, temperature: float = 1.0, entropy: bool = False, ignore_index: Any = None
) -> dict[str, Any]:
    """Return log-probs, and entropies where a label stands."""
    logps, scaled = scored(torch.tensor(logits), ids, temperature, ignore_index)
    if not entropy:
        return {"logprobs": logps.numpy()}
    entropies = entropy_from_logits(scaled)
    if ignore_index is not None:
        entropies = entropies.masked_fill(torch.tensor(ids) == ignore_index, 0.0)
    return {"logprobs": logps.numpy(), "entropy": entropies.numpy()}


def selective_log_softmax_backward(
    *, logits: Any, ids: Any, grad_logprobs: Any, temperature: float = 1.0, ignore_index: Any = None
) -> dict[str, Any]:
    """Return the vector-Jacobian product."""
    leaf = torch.tensor(logits, requires_grad=True)
    logps, _ = scored(leaf, ids, temperature, ignore_index)
    logps.backward(torch.tensor(grad_logprobs).to(logps.dtype))
    return {"gradient": leaf.grad.numpy()}


OPS = {
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
CONVENTIONS = {name: {"dtype": ("float16", "float32", "float64")} for name in OPS}
