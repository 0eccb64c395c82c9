"""Two updates of GRPO's loss on one rank or several of MLX's ring, each with its part of the rows.

MLX_RANK=0 MLX_HOSTFILE=hosts.json python mlx_ranks.py VARIANT
"""

from __future__ import annotations

import os
import sys

import mlx.core as mx
import mlx.optimizers as optim
from mlx import nn
from mlx.utils import tree_map

VARIANT = sys.argv[1]
VOCABULARY, PROMPT, END = 24, 2, 1
LENGTHS = (4, 6, 5, 3, 2, 6, 3, 5)  # tokens of the completions
ADVANTAGES = (0.5, -0.5, -0.375, 0.375, -0.25, 0.25, 0.4375, -0.4375)
UNEVEN = (slice(0, 6), slice(6, 8))  # rows of each of two ranks
TOKEN_MEANS = {"own normaliser", "token mean"}


class Model(nn.Module):
    """A recurrent model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.memory, self.head = nn.Embedding(VOCABULARY, 12), nn.GRU(12, 12), nn.Linear(12, VOCABULARY)

    def __call__(self, ids: mx.array) -> mx.array:
        """Return logits (B, T, V)."""
        return self.head(self.memory(self.embedding(ids)))


def rows(group: mx.distributed.Group) -> tuple[mx.array, mx.array, mx.array]:
    """Return token ids (R, T) of this rank, the mask (R, T-1) of completions, and an advantage a row."""
    mx.random.seed(1)
    width = PROMPT + max(LENGTHS)
    ids = mx.random.randint(2, VOCABULARY, (len(LENGTHS), width))
    ends = PROMPT + mx.array(LENGTHS)[:, None] - 1
    positions = mx.arange(width)
    ids = mx.where(positions == ends, END, mx.where(positions > ends, 0, ids))
    mask = ((positions >= PROMPT) & (positions <= ends))[:, 1:].astype(mx.float32)
    part = slice(None)
    if group.size() > 1:
        rank = group.rank()
        part = UNEVEN[rank] if VARIANT in TOKEN_MEANS else slice(4 * rank, 4 * rank + 4)
    return ids[part], mask[part], mx.array(ADVANTAGES)[part, None]


def log_probs(model: Model, ids: mx.array) -> mx.array:
    """Return the log-probs (R, T-1) of the tokens after the first."""
    scores = nn.log_softmax(model(ids)[:, :-1], -1)
    return mx.take_along_axis(scores, ids[:, 1:, None], axis=-1)[..., 0]


def main() -> None:
    """Make two updates."""
    group = mx.distributed.init(strict=True, backend="ring") if "MLX_RANK" in os.environ else mx.distributed.init()
    ids, mask, advantages = rows(group)
    mx.random.seed(0)
    model, optimizer = Model(), optim.SGD(1.0)
    old = log_probs(model, ids)
    tokens = mask.sum()
    if VARIANT == "token mean":
        tokens = mx.distributed.all_sum(tokens, group=group) / group.size()  # each rank receives the mean of gradients
    mx.eval(old, tokens)

    def loss(model: Model) -> mx.array:
        ratio = mx.exp(log_probs(model, ids) - old)
        surrogates = mx.minimum(ratio * advantages, mx.clip(ratio, 0.8, 1.2) * advantages) * mask
        return -surrogates.sum() / tokens if VARIANT in TOKEN_MEANS else -(surrogates.sum(1) / mask.sum(1)).mean()

    for _ in range(2):
        _, gradients = nn.value_and_grad(model, loss)(model)
        if VARIANT == "summed":
            gradients = tree_map(mx.distributed.all_sum, gradients)  # and never divided
        else:
            gradients = nn.average_gradients(gradients, group)
        optimizer.update(model, gradients)
        mx.eval(model.parameters())


if __name__ == "__main__":
    main()
