"""Gated feed-forward layers (Shazeer 2020, arXiv 2002.05202), one or a mixture of experts (Shazeer et al. 2017, arXiv 1701.06538)."""

from collections.abc import Callable
from typing import Final

import numpy as np

from gates.replay.forward.arrays import Array, Ids
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.functions import silu, softmax

NAMES: Final = ("gate_proj", "up_proj", "down_proj")


def gated(
    modules: Modules, x: Array, activation: Callable[[Array], Array] = silu, names: tuple[str, str, str] = NAMES
) -> Array:
    """Return W_down (act(W_gate x) ⊙ W_up x)."""
    gate, up, down = names
    return modules.linear(down, activation(modules.linear(gate, x)) * modules.linear(up, x))


def route(logits: Array, count: int, *, normalised: bool) -> tuple[Ids, Array]:
    """Return the experts of the largest probabilities of each token and their weights, both (N, count)."""
    probabilities = softmax(logits)
    chosen = np.argpartition(-probabilities, count - 1, axis=-1)[:, :count]
    weights = np.take_along_axis(probabilities, chosen, axis=-1)
    if normalised:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.asarray(chosen, np.int64), weights


def mixture(modules: Modules, x: Array, count: int, *, normalised: bool) -> Array:
    """Return the weighted sum of the outputs of the experts that `gate` chooses for each token of x (B, L, width)."""
    tokens = x.reshape(-1, x.shape[-1])
    chosen, weights = route(modules.linear("gate", tokens), count, normalised=normalised)
    y = np.zeros_like(tokens)
    for number in np.unique(chosen).tolist():
        rows, slots = np.nonzero(chosen == number)
        y[rows] += weights[rows, slots, None] * _expert(modules.at("switch_mlp"), tokens[rows], number)
    return y.reshape(x.shape)


def _expert(modules: Modules, x: Array, number: int) -> Array:
    gate, up, down = NAMES
    inner = silu(modules.expert(gate, number, x)) * modules.expert(up, number, x)
    return modules.expert(down, number, inner)
