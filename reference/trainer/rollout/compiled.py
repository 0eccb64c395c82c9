"""All rows together over fixed buffers, one compiled step for all: `batched`, with less to do between two steps.

For models whose every layer has a plain KVCache and whose family bears left padding. Where it cannot run, the batched
path does, and the table says why.
"""

import os
import shutil
from typing import Any, Final, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer.rollout import batched, caches, decode, fixed, rows, table

Ints = NDArray[np.int64]

COLUMNS: Final = 16
"""Buffers have a multiple of this many columns and grow by as many when they are full. Attention pays for columns that
no row has reached (64 of them: a fifth of a step of 16 rows), another shape costs less than one step to trace."""
WIDTHS: Final = (1, 2, 3, 4, 6, 8)
"""Batch sizes; beyond, powers of two, so that few shapes are traced. OpenBLAS multiplies 12 rows by a weight in twice the
time that 16 take (0.3.21, AVX-512, two threads), 24 in a fifth more than 32 take."""


def why_not(model: Any) -> str:
    """Why this model's step cannot be compiled here, "" if it can."""
    if os.environ.get("MLX_DISABLE_COMPILE"):
        return "MLX_DISABLE_COMPILE is set"
    if mx.default_device().type == mx.DeviceType.cpu and shutil.which("g++") is None:
        return "no C++ compiler: MLX compiles for the CPU with g++, which is not on the PATH"
    if caches.family(model) not in caches.LEFT_PADDED:
        return f"model type {caches.family(model)!r} is not known to bear left padding"
    kinds = caches.kinds(model)
    return "" if kinds == {"KVCache"} else f"fixed buffers know KVCache, this model has {', '.join(sorted(kinds))}"


class _Ahead(NamedTuple):
    """A step that is not evaluated yet, and the array (B, 1) that it reads its tokens from."""

    tokens: mx.array
    logits: mx.array
    keys: fixed.Arrays
    values: fixed.Arrays


class Compiled:
    """Steps over fixed buffers by a compiled function.

    A step's graph is built ahead of its tokens, around an array that they are written into when they are known: MLX reads
    it when the graph is evaluated. What is built and not used costs nothing but the time to build it.
    """

    def __init__(self, model: Any, prefilled: caches.Prefilled, source: Ints) -> None:
        """Copy each row's prompt from the prefill, `source` (B,) naming its row there, into buffers of its own."""
        self._step = fixed.compiled_step(model)
        self._ahead: _Ahead | None = None
        pairs = [layer.keys_and_values() for layer in prefilled.cache]
        self.keys = [keys for keys, _ in pairs]
        self.values = [values for _, values in pairs]
        self.padding = prefilled.padding
        self.position = int(self.keys[0].shape[2])
        self._grow()  # first, for the few rows of the prompts; and a padded copy is contiguous, which repeats faster
        self.keep(source)

    def _grow(self) -> None:
        """Make room for the next columns, up to a multiple of `COLUMNS`."""
        room = [(0, 0), (0, 0), (0, COLUMNS - self.position % COLUMNS), (0, 0)]
        self.keys = [mx.pad(x, room) for x in self.keys]
        self.values = [mx.pad(x, room) for x in self.values]

    def ahead(self) -> None:
        """Build the next step's graph, while the one before it runs."""
        self._ahead = self._built()

    def _built(self) -> _Ahead:
        if self.position == self.keys[0].shape[2]:
            self._grow()
        tokens = mx.array(np.zeros((len(self.padding), 1), np.int32))
        position = mx.array([self.position], mx.int32)
        padding = mx.array(self.padding.astype(np.int32))
        return _Ahead(tokens, *self._step(tokens, position, padding, self.keys, self.values))

    def step(self, tokens: NDArray[np.int32]) -> mx.array:
        """The logits (B, V) after one more token of each row."""
        built, self._ahead = self._ahead or self._built(), None
        np.array(built.tokens, copy=False)[:, 0] = tokens
        self.keys, self.values = built.keys, built.values
        self.position += 1
        return built.logits

    def keep(self, positions: Ints) -> None:
        """Go on with these rows; the columns stay as they are, and so does the shape in which they are compiled."""
        self._ahead = None
        chosen = mx.array(positions.astype(np.int32))
        self.keys = [x[chosen] for x in self.keys]
        self.values = [x[chosen] for x in self.values]
        self.padding = self.padding[positions]

    def width(self, live: int) -> int:
        """The smallest of the batch sizes that holds the rows."""
        return next((size for size in WIDTHS if size >= live), 1 << (live - 1).bit_length())


def rollout(model: Any, request: table.Request) -> table.Rollout:
    """The tokens of every requested row, by the batched path if the step cannot be compiled."""
    reason = why_not(model)
    if not reason and len(request.rows) and request.kv_bits is None:
        try:
            return _rollout(model, request)
        except RuntimeError as error:  # MLX compiles at the first evaluation, and says so with this type
            if "ompile" not in str(error):
                raise
            reason = f"MLX could not compile the step: {error}"
            fixed.forget()
    result = batched.rollout(model, request)
    result.reason = reason
    return result


def _rollout(model: Any, request: table.Request) -> table.Rollout:
    result = table.Rollout.empty(request, "compiled")
    numbers = request.rows[:, 0] * request.samples + request.rows[:, 1]
    pairs = rows.prompt_of_row(numbers, len(request.prompts), request.samples)
    used, source = np.unique(pairs[:, 0], return_inverse=True)
    prefilled = caches.together(model, [request.prompts[i] for i in used])
    steps = Compiled(model, prefilled, source)
    last = prefilled.last[mx.array(source.astype(np.int32))]
    decode.decode(steps, last, request, result, np.arange(len(pairs)))
    return result
