"""A sampler that draws from the sorted probabilities, as top-p code does, so that a uniform means another token."""

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
    index = np.argsort(-logprobs, axis=-1, kind="stable")
    running = np.cumsum(np.exp(np.take_along_axis(logprobs, index, -1)), -1)
    place = (running <= (uniforms * running[:, -1])[:, None]).sum(-1)
    tokens = np.take_along_axis(index, place[:, None], -1)[:, 0]
    return {"tokens": tokens, "logprobs": logprobs[np.arange(len(tokens)), tokens]}


MORE = ("presence_penalty", "frequency_penalty", "min_tokens_to_keep", "logit_bias", "xtc_special_tokens")
OPS = {"sample_tokens": sample_tokens}
CONVENTIONS = {"sample_tokens": {"order": ("hf",), "arithmetic": ("float32",)}}
COMPUTES = "the running sum from the likeliest token on"
