"""The entropy is taken of the logits before they are divided by the temperature."""

import numpy as np


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def selective_log_softmax(logits, ids, *, temperature, entropy=False, **_):
    if ids.ndim == logits.ndim:
        raise NotImplementedError("one id for each position")
    x = logits.astype(np.float64 if logits.dtype == np.float64 else np.float32)
    found = {"logprobs": np.take_along_axis(log_softmax(x / temperature), ids[..., None], axis=-1)[..., 0]}
    if entropy:
        logps = log_softmax(x)
        found["entropy"] = -(np.exp(logps) * logps).sum(axis=-1)
    return found


OPS = {"selective_log_softmax": selective_log_softmax}
CONVENTIONS = {"selective_log_softmax": {"ids_per_position": ("one",), "ignore_index": (None,)}}
COMPUTES = "the entropy of the untempered logits"
