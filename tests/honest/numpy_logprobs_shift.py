"""Log-probs as the logit less np.logaddexp.reduce, and two forms of the entropy, in NumPy; float32 and float64.

gates check logprobs --subject tests/honest/numpy_logprobs_shift.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def selective_log_softmax(*, logits: Any, ids: Any, temperature: float = 1.0, entropy: bool = False) -> dict[str, Any]:
    """Pick the logits first, then subtract the normaliser."""
    x = logits / logits.dtype.type(temperature)
    normaliser = np.logaddexp.reduce(x, axis=-1)
    flat, labels = x.reshape(-1, x.shape[-1]), ids.reshape(normaliser.size, -1)
    picked = flat[np.arange(len(flat))[:, None], labels]
    result = {"logprobs": (picked - normaliser.reshape(-1, 1)).reshape(ids.shape)}
    if entropy:
        p = np.exp(x - normaliser[..., None])
        result["entropy"] = normaliser - np.sum(p * x, axis=-1, where=p > 0)
    return result


def selective_log_softmax_backward(
    *, logits: Any, ids: Any, grad_logprobs: Any, temperature: float = 1.0
) -> dict[str, Any]:
    """Return g (onehot − p) / τ, one position at a time."""
    x = (logits / logits.dtype.type(temperature)).reshape(-1, logits.shape[-1])
    gradient = np.empty_like(x)
    for row, labels, upstream, out in zip(
        x, ids.reshape(len(x), -1), grad_logprobs.reshape(len(x), -1), gradient, strict=True
    ):
        e = np.exp(row - row.max())
        out[:] = -upstream.sum() * e / e.sum()
        np.add.at(out, labels, upstream)
    return {"gradient": (gradient / logits.dtype.type(temperature)).reshape(logits.shape)}


OPS = {
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
CONVENTIONS = {name: {"dtype": ("float32", "float64")} for name in OPS}
