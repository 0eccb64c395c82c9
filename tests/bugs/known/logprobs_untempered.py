"""Rollouts are sampled at a temperature; the log-probs of training forget it."""

import numpy as np


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def selective_log_softmax(logits, ids, **_):
    if ids.ndim == logits.ndim:
        raise NotImplementedError("one id for each position")
    logps = log_softmax(logits.astype(np.float64 if logits.dtype == np.float64 else np.float32))
    return {"logprobs": np.take_along_axis(logps, ids[..., None], axis=-1)[..., 0]}


OPS = {"selective_log_softmax": selective_log_softmax}
CONVENTIONS = {"selective_log_softmax": {"ids_per_position": ("one",), "ignore_index": (None,)}}
COMPUTES = "the temperature ignored"
