"""The backward of a gather: the softmax in the normaliser gets no gradient."""

import numpy as np


def selective_log_softmax_backward(logits, ids, grad_logprobs, *, temperature, grad_entropy, ignore_index=None):
    if grad_entropy is not None or ids.ndim == logits.ndim or ignore_index is not None:
        raise NotImplementedError
    x = logits.astype(np.float64) / temperature
    p = np.exp(x - x.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    gradient = np.zeros(p.shape)
    np.put_along_axis(gradient, ids[..., None], 1.0 / temperature, -1)
    return {"gradient": (gradient * grad_logprobs[..., None]).astype(grad_logprobs.dtype)}


OPS = {"selective_log_softmax_backward": selective_log_softmax_backward}
CONVENTIONS = {"selective_log_softmax_backward": {"ids_per_position": ("one",)}}
COMPUTES = "without that of the normaliser"
