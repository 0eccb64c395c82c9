"""The decode loop of the cached paths: one evaluation per step; the next step starts before the last one is recorded."""

from typing import Any, Final, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer.rollout import caches, sampler, table

Ints = NDArray[np.int64]

SPARSE: Final = 0.75
"""Ended rows are removed when at most this share of the batch is live: moving the caches costs more than a few idle rows."""


class Steps(Protocol):
    """A batch of rows that a model decodes, one token per row and step."""

    def step(self, tokens: NDArray[np.int32]) -> mx.array:
        """Return the logits (B, V) after one more token (B,) of each row, not evaluated yet."""

    def ahead(self) -> None:
        """Prepare the next step as far as possible before its tokens are known."""

    def keep(self, positions: Ints) -> None:
        """Continue with the rows at these positions; repetitions are allowed."""

    def width(self, live: int) -> int:
        """Return the size of a batch for `live` rows; the surplus rows repeat one of them and are ignored."""


class Cached:
    """Steps of a model over mlx-lm's caches."""

    def __init__(self, model: Any, prefilled: caches.Prefilled) -> None:
        """Start after a prefill."""
        self.model = model
        self.cache = prefilled.cache
        self.padding = prefilled.padding

    def step(self, tokens: NDArray[np.int32]) -> mx.array:
        """Return the logits (B, V) after one more token of each row."""
        return self.model(mx.array(tokens[:, None]), cache=self.cache)[:, -1, :]

    def ahead(self) -> None:
        """Do nothing: building a graph advances mlx-lm's caches, so it could not be discarded."""

    def keep(self, positions: Ints) -> None:
        """Continue with these rows, and drop columns that are padding in all of them."""
        padding = self.padding[positions]
        cut = int(padding.min())
        chosen = mx.array(positions.astype(np.int32))
        for layer in self.cache:
            caches.select(layer, chosen, cut)
        self.padding = padding - cut

    def width(self, live: int) -> int:
        """Return the number of live rows."""
        return live


def decode(steps: Steps, last: mx.array, request: table.Request, result: table.Rollout, chosen: Ints) -> None:
    """Draw all tokens of the `chosen` rows (N,) of the table, whose first logits are `last` (N, V).

    The batch holds the rows `chosen[index]`. Ended rows stay in it, idle, until few rows are live (`SPARSE`).
    """
    mx.async_eval(last)  # type: ignore[no-untyped-call]  # MLX's stub; the prefill runs while the uniforms are computed
    steps.ahead()
    draws = sampler.Sampler(request, result.rows[chosen])
    most = request.most()[chosen]
    index = np.arange(len(chosen))
    live = np.ones(len(chosen), np.bool_)  # of the batch's rows
    for t in range(request.max_tokens):
        logits = sampler.host(last)
        at = np.flatnonzero(live)
        read = logits if len(at) == len(logits) else logits[at]
        tokens, behaviour = draws.draw(read, index[at], t)
        ended = table.finished(tokens, request.eos_ids, np.zeros(len(at), np.bool_))
        drawn_by = index[at]
        stays = ~ended & (t + 1 < most[drawn_by])
        going = at[stays]
        over = not len(going)
        written = chosen[drawn_by]
        if not over:
            next_tokens = np.zeros(len(live), np.int32)
            next_tokens[at] = tokens
            live[at] = stays
            if len(going) <= SPARSE * len(live) and (width := steps.width(len(going))) < len(live):
                filled = np.concatenate([going, np.repeat(going[:1], width - len(going))])
                steps.keep(filled)
                index, next_tokens = index[filled], next_tokens[filled]
                live = np.arange(width) < len(going)
            last = steps.step(next_tokens)
            mx.async_eval(last)  # type: ignore[no-untyped-call]  # MLX's stub; while it runs, the next graph is built and what was drawn is written down
            steps.ahead()
        u = draws.uniforms[drawn_by, t]
        result.record(written, t, read, u, draws.score(read, tokens, behaviour), keep=request.record_logits)
        result.lengths[written] = t + 1
        result.ended[written] = ended
        if over:
            return
