"""Filters of generate() whose repetition penalty divides each seen logit, negative ones too, which makes them likelier."""

import numpy as np

OP = "filtered_logprobs"
BUG = "the repetition penalty divides negative logits too instead of multiplying them"
SAYS = ("penalty|repetition", "negative|sign|divi|multipl")
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",), "min_tokens_to_keep": (1,)}}


def log_softmax(x):
    shifted = x - np.max(x)
    return shifted - np.log(np.sum(np.exp(shifted)))


def keep_only(logp, keep):
    return log_softmax(np.where(keep, logp, -np.inf))


def nucleus(logp, top_p):
    order = np.argsort(logp, kind="stable")
    mass = np.cumsum(np.exp(logp[order]))
    keep = np.zeros(len(logp), bool)
    keep[order] = mass > 1 - top_p
    keep[order[-1]] = True
    return keep


def filtered_logprobs(
    *, logits, order, temperature, top_k, top_p, min_p, xtc_probability, repetition_penalty, history, **extras
):
    unknown = ("presence_penalty", "frequency_penalty")
    if order != "hf" or xtc_probability > 0 or any(extras.get(name) for name in unknown):
        raise NotImplementedError
    if extras.get("logit_bias") is not None or extras.get("min_tokens_to_keep", 1) > 1:
        raise NotImplementedError
    result = []
    for i, raw in enumerate(logits.astype(np.float64)):
        row = raw.copy()
        if repetition_penalty != 1 and history is not None:
            seen = np.unique(history[i][history[i] >= 0])
            row[seen] = row[seen] / repetition_penalty
        if temperature == 0:
            result.append(np.where(np.arange(len(row)) == row.argmax(), 0.0, -np.inf))
            continue
        row = log_softmax(row / temperature)
        if top_k and top_k < len(row):
            row = keep_only(row, row >= np.partition(row, -top_k)[-top_k])
        if top_p < 1:
            row = keep_only(row, nucleus(row, top_p))
        if min_p > 0:
            row = keep_only(row, np.exp(row) >= min_p * np.exp(row.max()))
        result.append(row)
    return {"logprobs": np.array(result)}


OPS = {"filtered_logprobs": filtered_logprobs}
