"""Tokens are drawn from the filtered row; the log-prob that is kept is that of the whole softmax."""

import numpy as np


def filtered(logits, top_k, top_p, temperature):
    """Transformers' order, in NumPy."""
    x = (logits / temperature).astype(np.float64)
    if top_k:
        kth = np.sort(x, axis=-1)[:, [-min(top_k, x.shape[1])]]
        x = np.where(x < kth, -np.inf, x)
    if top_p < 1:
        index = np.argsort(-x, axis=-1, kind="stable")
        p = np.exp(np.take_along_axis(x, index, -1) - x.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        drop = np.zeros(x.shape, bool)
        np.put_along_axis(drop, index, np.cumsum(p, -1) - p >= top_p, -1)
        x = np.where(drop, -np.inf, x)
    m = x.max(-1, keepdims=True)
    return x - m - np.log(np.exp(x - m).sum(-1, keepdims=True))


def sample_tokens(
    logits, uniforms, *, order, temperature, top_k, top_p, min_p, xtc_probability, repetition_penalty, **more
):
    if (
        order != "hf"
        or temperature == 0
        or min_p
        or xtc_probability
        or repetition_penalty != 1
        or any(map(more.get, MORE))
    ):
        raise NotImplementedError
    logprobs = filtered(logits, top_k, top_p, temperature)
    running = np.cumsum(np.exp(logprobs), -1)
    tokens = (running <= (uniforms * running[:, -1])[:, None]).sum(-1)
    whole = filtered(logits, 0, 1.0, temperature)
    return {"tokens": tokens, "logprobs": whole[np.arange(len(tokens)), tokens]}


MORE = ("presence_penalty", "frequency_penalty", "min_tokens_to_keep", "logit_bias", "xtc_special_tokens")
OPS = {"sample_tokens": sample_tokens}
CONVENTIONS = {"sample_tokens": {"order": ("hf",), "arithmetic": ("float32",)}}
COMPUTES = "log-probs of the unfiltered distribution"
