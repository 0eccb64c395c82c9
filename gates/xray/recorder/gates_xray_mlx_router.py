"""The load-balancing losses of the routers of a mixture of experts, which scripts compute themselves: models of MLX give none.

A router is a part named `gate` or `router` that gives a score for each expert, inside of a module that says how many experts a token
has. The loss is that of the Switch Transformer (arXiv:2101.03961, equation 4) for the k best experts, as transformers has it:
experts · Σ_e (share of the tokens' choices that are e) · (mean probability of e).

It runs in the interpreter of the script: standard library, NumPy and mlx only.
"""

from __future__ import annotations

import contextlib

import mlx.core as mx
import numpy as np
from mlx import nn

NAMES = ("gate", "router")
CHOSEN = ("top_k", "num_experts_per_tok", "num_experts_per_token")  # attributes that say how many experts a token has


class _Seen:
    """A router whose scores are kept when it is called."""

    def __init__(self, router, scores, chosen):
        self.router = router
        self.scores = scores
        self.chosen = chosen

    def __call__(self, *args, **kwargs):
        result = self.router(*args, **kwargs)
        if isinstance(result, mx.array) and result.ndim > 1:
            self.scores.append((result.reshape(-1, result.shape[-1]), self.chosen))
        return result


@contextlib.contextmanager
def _watched(module):
    """Yield a list that gets the scores (N, E) of each router that is called inside the block, and how many experts are chosen."""
    scores, kept = [], []
    for part in module.modules():
        chosen = next((value for name in CHOSEN if isinstance(value := getattr(part, name, None), int)), None)
        for name in NAMES if chosen else ():
            if isinstance(part.get(name), nn.Module):
                kept.append((part, name, part[name]))
                dict.__setitem__(part, name, _Seen(part[name], scores, chosen))
    try:
        yield scores if kept else None
    finally:
        for part, name, router in kept:
            dict.__setitem__(part, name, router)


def _shares(scores, chosen, counted):
    """Return the share of choices and the mean probability of each expert, over the tokens that count."""
    experts = scores.shape[-1]
    weights = counted[:, None] / counted.sum()
    best = mx.argpartition(-scores, chosen - 1, axis=-1)[:, :chosen, None] == mx.arange(experts)
    probabilities = mx.softmax(scores.astype(mx.float32), axis=-1)
    return (best.sum(1) * weights).sum(0), (probabilities * weights).sum(0)


def _losses(call, attended, apart):
    """Return the losses of a pass (n,), None where no router is called: one for each layer, or one for all layers' tokens together."""
    with _watched(call.module) as scores:
        if scores is None:
            return None
        call.logits()
    width = call.ids.shape[1]
    counts = call.attended[:, :width] if attended else np.ones_like(call.ids)
    counted = mx.array(counts.reshape(-1).astype(np.float32))
    shares = [_shares(*layer, counted) for layer in scores if len(layer[0]) == len(counted)]
    if not shares:
        return None
    experts = shares[0][0].size
    if apart:
        return mx.stack([experts * (choices * means).sum() for choices, means in shares])
    choices, means = (sum(values) / len(shares) for values in zip(*shares, strict=True))
    return (experts * (choices * means).sum())[None]


def forms(columns):
    """Yield the sketched columns of each form of the loss: over attended tokens or all, over all layers or for each layer."""
    for apart in (False, True):
        for attended in (True, False):
            sketches = [_columns(columns, call, attended, apart) for call in columns.calls]
            if any(sketch is None for sketch in sketches):
                return
            yield np.concatenate(sketches)


def _columns(columns, call, attended, apart):
    """Return the sketched gradients (n, bins) of a pass's losses."""
    names = list(columns.weights.slots)
    weights = [columns.weights.wide[name] for name in names]
    many = []

    def losses(*given):
        with columns.weights.using(dict(zip(names, given, strict=True))):
            result = _losses(call, attended, apart)
        many[:] = [0 if result is None else result.size]
        return mx.zeros(1) if result is None else result

    mx.eval(losses(*weights))
    if not many[0]:
        return None
    each = []
    for one_hot in mx.eye(many[0]):
        gradients = mx.vjp(losses, weights, [one_hot])[1]
        mx.eval(gradients)
        each.append(columns.sketched(gradients, names=columns.reached)[0])
    return np.stack(each)
