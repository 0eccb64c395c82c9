"""Log-probs as written in MLX: logits less logsumexp, gradients by mx.grad.

Float64 is left out: MLX 0.32 computes exp and log of float64 arrays to 1e-8 only.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

VERSIONS = {"mlx": mx.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"dtype": ("float16", "float32"), "ids_per_position": (), "ignore_index": ()}
    for name in ("selective_log_softmax", "selective_log_softmax_backward")
}


def logprobs_of(x: mx.array, ids: mx.array, temperature: float) -> tuple[mx.array, mx.array]:
    """Return the log-probs of the ids, and all log-probs."""
    if x.dtype == mx.float16:
        x = x.astype(mx.float32)
    x = x / temperature
    logps = x - mx.logsumexp(x, axis=-1, keepdims=True)
    return mx.take_along_axis(logps, ids[..., None], axis=-1).squeeze(-1), logps


def entropy_of(logps: mx.array) -> mx.array:
    """Return −Σ p log p."""
    return -(mx.exp(logps) * logps).sum(axis=-1)


def selective_log_softmax(*, logits: Any, ids: Any, temperature: float, entropy: bool) -> dict[str, Any]:
    """Gather from logits less logsumexp."""
    found, logps = logprobs_of(mx.array(logits), mx.array(ids), temperature)
    result = {"logprobs": np.array(found)}
    if entropy:
        result["entropy"] = np.array(entropy_of(logps))
    return result


def selective_log_softmax_backward(
    *, logits: Any, ids: Any, grad_logprobs: Any, temperature: float, grad_entropy: Any
) -> dict[str, Any]:
    """Differentiate with mx.grad."""
    tokens, upstream = mx.array(ids), mx.array(grad_logprobs)

    def loss(x: mx.array) -> mx.array:
        found, logps = logprobs_of(x, tokens, temperature)
        whole = (found * upstream).sum()
        return whole if grad_entropy is None else whole + (entropy_of(logps) * mx.array(grad_entropy)).sum()

    return {"gradient": np.array(mx.grad(loss)(mx.array(logits)))}


OPS = {
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
