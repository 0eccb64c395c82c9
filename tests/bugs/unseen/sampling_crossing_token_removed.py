"""Filters of generate() whose top-p removes each token at which the running mass exceeds p, the crossing one included."""

import numpy as np

OP = "filtered_logprobs"
BUG = "top-p drops the token that crosses the threshold: what is kept holds less than p"
SAYS = ("top-p|top_p|nucleus|mass", "cross|reach|last|one token|one fewer|too few|less than|drop|exceed|below")
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",), "min_tokens_to_keep": (1,)}}


def normalise(row):
    top = row.max()
    return row - top - np.log(np.exp(row - top).sum())


def penalise(row, history, penalty):
    seen = np.unique(history[history >= 0])
    row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)


def top_p_filter(row, top_p):
    order = np.argsort(-row, kind="stable")
    mass = np.cumsum(np.exp(row[order]))
    removed = mass > top_p
    removed[0] = False
    row[order[removed]] = -np.inf


def filter_row(row, temperature, top_k, top_p, min_p):
    row = normalise(row / temperature)
    if 0 < top_k < len(row):
        row = normalise(np.where(row < np.sort(row)[-top_k], -np.inf, row))
    if top_p < 1:
        top_p_filter(row, top_p)
        row = normalise(row)
    if min_p > 0:
        row = normalise(np.where(row < row.max() + np.log(min_p), -np.inf, row))
    return row


def filtered_logprobs(
    *, logits, temperature, top_k, top_p, min_p, xtc_probability, repetition_penalty, history, **extras
):
    asked = any(extras.get(name) for name in ("presence_penalty", "frequency_penalty"))
    if xtc_probability > 0 or asked or extras.get("logit_bias") is not None or extras.get("order") != "hf":
        raise NotImplementedError
    if extras.get("min_tokens_to_keep", 1) != 1:
        raise NotImplementedError
    out = np.full(logits.shape, -np.inf)
    for i in range(len(logits)):
        row = logits[i].astype(np.float64)
        if repetition_penalty != 1 and history is not None:
            penalise(row, history[i], repetition_penalty)
        if temperature == 0:
            out[i, np.argmax(row)] = 0.0
        else:
            out[i] = filter_row(row, temperature, top_k, top_p, min_p)
    return {"logprobs": out}


OPS = {"filtered_logprobs": filtered_logprobs}
