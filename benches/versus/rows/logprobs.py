"""Log-probabilities of chosen tokens, and the entropy, from a batch of logits."""

from __future__ import annotations

from functools import cache

import numpy as np

from benches import inputs
from benches.versus import proof
from benches.versus.model import Row, Side
from benches.versus.rows.kl import EXP
from reference.oracle import logprobs as oracle

SHAPES = ("256x151936-flat",)
QUICK = "4x4096-peaked"
GOAL = 10.0
ROOFLINE_GOAL = 0.67
SHARE = 2.0**-14
SUMS = "float32 sums over the vocabulary: 2^-14 of the scale"


def rows():
    """With and without entropy against TRL's functions."""
    found = []
    for shape in (QUICK, *SHAPES):
        rows, vocabulary, _ = inputs.LOGITS[shape]
        for entropy in (False, True):
            goals = {} if shape == QUICK else {"goal": GOAL, "roofline_goal": ROOFLINE_GOAL}
            found.append(
                Row(
                    f"selective_log_softmax float32{' with entropy' if entropy else ''}",
                    shape,
                    "TRL",
                    lambda shape=shape, entropy=entropy: _ours(shape, entropy=entropy),
                    (lambda shape=shape, entropy=entropy: _trl(shape, entropy=entropy),),
                    needs=("selective_log_softmax",),
                    reads=4 * rows * vocabulary,
                    writes=4 * rows * (2 if entropy else 1),
                    flops=float((EXP + (5 if entropy else 3)) * rows * vocabulary),
                    quick=shape == QUICK,
                    **goals,
                )
            )
    return sorted(found, key=lambda row: row.op)


@cache
def _logits(shape):
    return inputs.logits(shape)


@cache
def _want(shape):
    """Log-probs, their scale and the entropy, a few rows at a time: float64 temporaries of a row are large."""
    logits, ids, _ = _logits(shape)
    blocks = [slice(start, start + 16) for start in range(0, len(ids), 16)]
    return [
        np.concatenate([function(logits[block], ids[block], temperature=1.0) for block in blocks])
        for function in (
            oracle.selective_log_softmax,
            oracle.logprob_scale,
            lambda x, _, temperature: oracle.entropy(x, temperature=temperature),
        )
    ]


def _ours(shape, *, entropy):
    import rlkernels

    logits, ids, _ = _logits(shape)
    want, scale, wanted_entropy = _want(shape)
    first = proof.ours("log-probs", "float32", want, scale)
    second = proof.ours("entropy", "float32", wanted_entropy, np.maximum(1.0, wanted_entropy))
    names = {"selective_log_softmax": rlkernels.selective_log_softmax, "logits": logits, "ids": ids}
    if entropy:
        verify = lambda got: [*first(got[0]), *second(got[1])]  # noqa: E731  one of two, both short
        return Side("selective_log_softmax(logits, ids, entropy=True)", names, verify)
    return Side("selective_log_softmax(logits, ids)", names, first)


def _trl(shape, *, entropy):
    import torch
    from trl.trainer import utils

    logits, ids, _ = _logits(shape)
    want, scale, wanted_entropy = _want(shape)
    names = {"logits": torch.from_numpy(logits), "ids": torch.from_numpy(ids)}

    def verify(got):
        values = got if entropy else (got,)
        found = [proof.within("TRL: log-probs", values[0].numpy(), want, SHARE * scale, SUMS)]
        if entropy:
            spread = SHARE * np.maximum(1.0, wanted_entropy)
            found.append(proof.within("TRL: entropy", values[1].numpy(), wanted_entropy, spread, SUMS))
        return found

    name = "selective_log_softmax_and_entropy" if entropy else "selective_log_softmax"
    note = "trl.trainer.utils; its CPU path, on two threads; no gradient is asked for"
    return Side(f"{name}(logits, ids)", {**names, name: getattr(utils, name)}, verify, note)
