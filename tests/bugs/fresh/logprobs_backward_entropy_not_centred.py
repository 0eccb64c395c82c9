"""Backward of the log-softmax whose entropy part is -p·log p and forgets the entropy that centres it."""

import numpy as np

OP = "selective_log_softmax_backward"
BUG = "the entropy's gradient lacks its term with H: it is -p·log p instead of -p·(log p + H)"
SAYS = ("entropy", "lack|missing|term|centr|+ H|log p|forgot|without")
CONVENTIONS = {"selective_log_softmax_backward": {"dtype": ("float32", "float64"), "ids_per_position": ("one",)}}


def selective_log_softmax_backward(*, logits, ids, grad_logprobs, temperature, grad_entropy):
    if ids.shape != logits.shape[:-1]:
        raise NotImplementedError("one id for each position")
    x = logits.astype(np.float64) / temperature
    x = x - x.max(axis=-1, keepdims=True)
    log_p = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    p = np.exp(log_p)
    one_hot = np.arange(logits.shape[-1]) == ids[..., None]
    gradient = grad_logprobs[..., None] * (one_hot - p)
    if grad_entropy is not None:
        surprise = np.where(p > 0, log_p, 0)
        gradient = gradient - grad_entropy[..., None] * p * surprise
    return {"gradient": (gradient / temperature).astype(logits.dtype)}


OPS = {"selective_log_softmax_backward": selective_log_softmax_backward}
