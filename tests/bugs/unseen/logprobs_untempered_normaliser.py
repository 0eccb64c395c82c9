"""Selective log-softmax that divides the picked logit by the temperature and normalises with the raw logits."""

import numpy as np

OP = "selective_log_softmax"
BUG = "the temperature divides the picked logit only and not the logits inside the logsumexp"
SAYS = ("temperature|τ|tau|tempered", "logsumexp|normali|denominator|only|partition|log-sum")
CONVENTIONS = {"selective_log_softmax": {"dtype": ("float32", "float64"), "ids_per_position": ("one",)}}


def logsumexp(x):
    top = x.max(axis=-1, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True)))[..., 0]


def selective_log_softmax(*, logits, ids, temperature, entropy):
    if ids.shape != logits.shape[:-1]:
        raise NotImplementedError("one id for each position")
    x = logits.astype(np.float64)
    picked = np.take_along_axis(x, ids[..., None], axis=-1)[..., 0]
    result = {"logprobs": picked / temperature - logsumexp(x)}
    if entropy:
        tempered = x / temperature
        logp = tempered - logsumexp(tempered)[..., None]
        p = np.exp(logp)
        result["entropy"] = -np.where(p > 0, p * np.where(p > 0, logp, 0), 0).sum(axis=-1)
    return result


OPS = {"selective_log_softmax": selective_log_softmax}
