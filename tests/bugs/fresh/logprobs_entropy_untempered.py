"""Selective log-softmax whose entropy is that of the raw logits, whatever the temperature of the log-probs."""

import numpy as np

OP = "selective_log_softmax"
BUG = "the entropy is that of the untempered distribution: the temperature is not applied to it"
SAYS = ("entropy", "temperature|τ|tau|temper")
CONVENTIONS = {"selective_log_softmax": {"dtype": ("float32", "float64"), "ids_per_position": ("one",)}}


def log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def entropy_of(x):
    logp = log_softmax(x)
    p = np.exp(logp)
    return -np.sum(p * np.where(p > 0, logp, 0), axis=-1)


def selective_log_softmax(*, logits, ids, temperature, entropy):
    if ids.ndim != logits.ndim - 1:
        raise NotImplementedError("one id for each position")
    x = logits.astype(np.float64)
    logp = log_softmax(x / temperature)
    outputs = {"logprobs": np.take_along_axis(logp, ids[..., None], axis=-1)[..., 0]}
    if entropy:
        outputs["entropy"] = entropy_of(x)
    return outputs


OPS = {"selective_log_softmax": selective_log_softmax}
