"""Backward pass of a fused log-softmax with entropy; the division by the temperature is missing from the chain rule."""

import numpy as np

OP = "selective_log_softmax_backward"
BUG = "the gradient is that by the tempered logits x/tau: the factor 1/temperature of the chain rule is forgotten"
SAYS = ("temperature|temper|1/τ|/ τ|/τ|tau|chain rule",)
CONVENTIONS = {"selective_log_softmax_backward": {}}


class FusedLogSoftmax:
    """Keeps what the backward pass needs of the forward pass over scaled logits."""

    def __init__(self, logits, temperature):
        self.temperature = temperature
        z = logits / temperature
        z = z - z.max(-1, keepdims=True)
        self.logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
        self.p = np.exp(self.logp)

    def from_logprobs(self, ids, g):
        total = g.sum(-1, keepdims=True)
        grad = -self.p * total
        flat, index, weight = (
            grad.reshape(-1, grad.shape[-1]),
            ids.reshape(-1, ids.shape[-1]),
            g.reshape(-1, g.shape[-1]),
        )
        for k in range(index.shape[1]):
            flat[np.arange(len(flat)), index[:, k]] += weight[:, k]
        return flat.reshape(grad.shape)

    def from_entropy(self, g):
        log = np.where(self.p > 0, self.logp, 0.0)
        h = -(self.p * log).sum(-1, keepdims=True)
        return -g[..., None] * self.p * (log + h)

    def backward(self, ids, grad_logprobs, grad_entropy):
        dz = self.from_logprobs(ids, grad_logprobs)
        if grad_entropy is not None:
            dz = dz + self.from_entropy(grad_entropy)
        return dz


def selective_log_softmax_backward(*, logits, ids, grad_logprobs, temperature, grad_entropy=None):
    logits, ids = np.asarray(logits), np.asarray(ids)
    g = np.asarray(grad_logprobs, np.float64)
    if ids.ndim < logits.ndim:
        ids, g = ids[..., None], g[..., None]
    saved = FusedLogSoftmax(logits.astype(np.float64), float(temperature))
    h = None if grad_entropy is None else np.asarray(grad_entropy, np.float64)
    return {"gradient": saved.backward(ids, g, h).astype(logits.dtype)}


OPS = {"selective_log_softmax_backward": selective_log_softmax_backward}
