"""Log-probs by other hands in NumPy: log-sum-exp over the logits, the softmax's logarithm, a gradient row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "selective_log_softmax": {"dtype": ("float32", "float64"), "ignore_index": (), "ids_per_position": ()},
    "selective_log_softmax_backward": {"dtype": ("float32", "float64"), "ignore_index": (), "ids_per_position": ()},
}


def logsumexp(x: Any) -> Any:
    """Return log Σ exp x of the last axis."""
    m = x.max(axis=-1)
    return m + np.log(np.exp(x - m[..., None]).sum(axis=-1))


def softmax(x: Any) -> Any:
    """Return p of the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def selective_log_softmax(*, logits: Any, ids: Any, temperature: float, entropy: bool) -> dict[str, Any]:
    """x[id]/τ − log Σ exp; H = log Σ exp − Σ p x."""
    x = logits / logits.dtype.type(temperature)
    found = {"logprobs": np.take_along_axis(x, ids[..., None], axis=-1)[..., 0] - logsumexp(x)}
    if entropy:
        found["entropy"] = logsumexp(x) - np.einsum("...v,...v->...", softmax(x), x)
    return found


def selective_log_softmax_backward(
    *, logits: Any, ids: Any, grad_logprobs: Any, temperature: float, grad_entropy: Any
) -> dict[str, Any]:
    """G (onehot − p) and the Jacobian of the entropy, one row after the other."""
    size = logits.shape[-1]
    result = np.empty_like(logits).reshape(-1, size)
    for index, row in enumerate(logits.reshape(-1, size)):
        p = softmax(row / logits.dtype.type(temperature))
        slope = -p
        slope[ids.reshape(-1)[index]] += 1
        slope *= grad_logprobs.reshape(-1)[index]
        if grad_entropy is not None:
            logps = np.log(p)
            upstream = -(logps + 1)  # of H with respect to p
            slope += grad_entropy.reshape(-1)[index] * p * (upstream - (p * upstream).sum())
        result[index] = slope / logits.dtype.type(temperature)
    return {"gradient": result.reshape(logits.shape)}


OPS = {
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
