"""The usual chain of logits processors; a token that stands in the history several times is penalised several times."""

import numpy as np

OP = "filtered_logprobs"
BUG = "the repetition penalty is applied once per occurrence in the history, not once per distinct token"
SAYS = (
    "repetition|penalty|penalis|penaliz",
    "occurrence|each time|every time|several times|twice|double|repeated|duplicate|per appearance|distinct|once|count|power|compound|cumulat|multiple",
)
CONVENTIONS = {"filtered_logprobs": {"order": ("hf",)}}


class RepetitionPenalty:
    def __init__(self, penalty, history):
        self.penalty, self.history = penalty, history

    def __call__(self, row, scores):
        for token in self.history[row]:
            if token < 0:
                continue
            score = scores[token]
            scores[token] = score * self.penalty if score < 0 else score / self.penalty
        return scores


class Temperature:
    def __init__(self, value):
        self.value = value

    def __call__(self, row, scores):
        if self.value == 0:
            only = np.full_like(scores, -np.inf)
            only[int(np.argmax(scores))] = 0.0
            return only
        return scores / self.value


class TopK:
    def __init__(self, k):
        self.k = k

    def __call__(self, row, scores):
        kth = np.sort(scores)[::-1][min(self.k, len(scores)) - 1]
        return np.where(scores < kth, -np.inf, scores)


class TopP:
    def __init__(self, p):
        self.p = p

    def __call__(self, row, scores):
        order = np.argsort(scores, kind="stable")
        cumulative = np.cumsum(softmax(scores)[order])
        gone = cumulative <= 1 - self.p
        gone[-1] = False
        scores = scores.copy()
        scores[order[gone]] = -np.inf
        return scores


class MinP:
    def __init__(self, share):
        self.share = share

    def __call__(self, row, scores):
        p = softmax(scores)
        return np.where(p < self.share * p.max(), -np.inf, scores)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def filtered_logprobs(
    *,
    logits,
    order,
    temperature,
    top_k,
    top_p,
    min_p,
    xtc_probability,
    xtc_threshold=None,
    xtc_coin=None,
    repetition_penalty=1.0,
    history=None,
):
    if order != "hf" or xtc_probability > 0:
        raise NotImplementedError("transformers' order without XTC")
    chain = []
    if repetition_penalty != 1.0:
        chain.append(RepetitionPenalty(repetition_penalty, np.asarray(history)))
    if temperature != 1.0:
        chain.append(Temperature(temperature))
    if top_k:
        chain.append(TopK(top_k))
    if top_p < 1.0:
        chain.append(TopP(top_p))
    if min_p > 0:
        chain.append(MinP(min_p))
    logits = np.asarray(logits)
    out = np.empty(logits.shape)
    for row in range(len(logits)):
        scores = logits[row].astype(np.float64)
        for processor in chain:
            scores = processor(row, scores)
        top = scores.max()
        out[row] = scores - top - np.log(np.exp(scores - top).sum())
    return {"logprobs": out.astype(logits.dtype)}


OPS = {"filtered_logprobs": filtered_logprobs}
