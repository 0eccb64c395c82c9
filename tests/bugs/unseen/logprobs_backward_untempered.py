"""Backward of the tempered log-softmax without the inner derivative: nothing divides the gradient by the temperature."""

import numpy as np

OP = "selective_log_softmax_backward"
BUG = "the gradient is not divided by the temperature"
SAYS = ("temperature|τ|tau",)
CONVENTIONS = {"selective_log_softmax_backward": {"dtype": ("float32", "float64"), "ids_per_position": ("one",)}}


def selective_log_softmax_backward(*, logits, ids, grad_logprobs, temperature, grad_entropy):
    if ids.shape != logits.shape[:-1]:
        raise NotImplementedError("one id for each position")
    vocabulary = logits.shape[-1]
    x = logits.reshape(-1, vocabulary).astype(np.float64) / temperature
    out = np.empty_like(x)
    upstream = grad_logprobs.reshape(-1).astype(np.float64)
    upstream_h = None if grad_entropy is None else grad_entropy.reshape(-1).astype(np.float64)
    for i, row in enumerate(x):
        shifted = row - row.max()
        logp = shifted - np.log(np.exp(shifted).sum())
        p = np.exp(logp)
        out[i] = -upstream[i] * p
        out[i, ids.reshape(-1)[i]] += upstream[i]
        if upstream_h is not None:
            finite = np.where(p > 0, logp, 0)
            out[i] -= upstream_h[i] * p * (finite - (p * finite).sum())
    return {"gradient": out.reshape(logits.shape).astype(logits.dtype)}


OPS = {"selective_log_softmax_backward": selective_log_softmax_backward}
