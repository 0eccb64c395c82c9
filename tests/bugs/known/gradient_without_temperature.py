"""The backward of a fused log-softmax forgets the chain rule through x/τ."""

import numpy as np


def selective_log_softmax_backward(logits, ids, grad_logprobs, *, temperature, grad_entropy, ignore_index=None):
    if ids.ndim == logits.ndim or ignore_index is not None:
        raise NotImplementedError
    x = logits.astype(np.float64) / temperature
    p = np.exp(x - x.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    gradient = -p
    np.put_along_axis(gradient, ids[..., None], np.take_along_axis(gradient, ids[..., None], -1) + 1, -1)
    gradient *= grad_logprobs[..., None]
    if grad_entropy is not None:
        entropy = -(p * np.log(p)).sum(-1, keepdims=True)
        gradient -= grad_entropy[..., None] * p * (np.log(p) + entropy)
    return {"gradient": gradient.astype(grad_logprobs.dtype)}


OPS = {"selective_log_softmax_backward": selective_log_softmax_backward}
CONVENTIONS = {"selective_log_softmax_backward": {"ids_per_position": ("one",)}}
COMPUTES = "not divided by τ"
