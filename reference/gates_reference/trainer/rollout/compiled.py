"""Roll out all rows in one batch with a compiled step over buffers of fixed size: `batched` with less work between two steps.

It needs a plain KVCache in every layer and a family that is tested with left padding. Otherwise the batched path runs instead, and
the result says why.
"""

import os
import shutil
from typing import Any, Final, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer.rollout import batched, caches, decode, fixed, table

Ints = NDArray[np.int64]

COLUMNS: Final = 16
"""Buffers have a multiple of this many columns and grow by as many when they are full. Attention also computes columns that no row
has reached (64 of them cost a fifth of a step of 16 rows); tracing another shape costs less than one step."""
WIDTHS: Final = (1, 2, 3, 4, 6, 8)
"""Batch sizes; larger ones are powers of two, so that few shapes are traced. OpenBLAS (0.3.21, AVX-512, two threads) takes twice as
long for 12 rows as for 16, and a fifth longer for 24 than for 32."""


def why_not(model: Any) -> str:
    """Return why this model's step cannot be compiled on this machine, "" if it can."""
    if os.environ.get("MLX_DISABLE_COMPILE"):
        return "MLX_DISABLE_COMPILE is set"
    if mx.default_device().type == mx.DeviceType.cpu and shutil.which("g++") is None:
        return "no C++ compiler: MLX compiles for the CPU with g++, which is not on the PATH"
    if caches.family(model) not in caches.LEFT_PADDED:
        return f"model type {caches.family(model)!r} is not known to bear left padding"
    kinds = caches.kinds(model)
    return "" if kinds == {"KVCache"} else f"fixed buffers know KVCache, this model has {', '.join(sorted(kinds))}"


class _Ahead(NamedTuple):
    """A step that is not evaluated yet, and the array (B, 1) from which it will read its tokens."""

    tokens: mx.array
    logits: mx.array
    keys: fixed.Arrays
    values: fixed.Arrays


class Compiled:
    """Steps over fixed buffers by a compiled function.

    The graph of a step is built before its tokens are known, around an array into which they are written later: MLX reads the array
    when the graph is evaluated. A graph that is not used costs only the time to build it.
    """

    def __init__(self, model: Any, prefilled: caches.Prefilled, source: Ints) -> None:
        """Copy each row's prompt from row `source` (B,) of the prefill into new buffers."""
        self._step = fixed.compiled_step(model)
        self._ahead: _Ahead | None = None
        pairs = [layer.keys_and_values() for layer in prefilled.cache]
        self.keys = [keys for keys, _ in pairs]
        self.values = [values for _, values in pairs]
        self.padding = prefilled.padding
        self.position = int(self.keys[0].shape[2])
        self._grow()  # before rows are repeated: fewer rows to copy, and a padded copy is contiguous, which repeats faster
        self.keep(source)

    def _grow(self) -> None:
        """Add columns up to the next multiple of `COLUMNS`."""
        room = [(0, 0), (0, 0), (0, COLUMNS - self.position % COLUMNS), (0, 0)]
        self.keys = [mx.pad(x, room) for x in self.keys]
        self.values = [mx.pad(x, room) for x in self.values]

    def ahead(self) -> None:
        """Build the next step's graph while the current one runs."""
        self._ahead = self._built()

    def _built(self) -> _Ahead:
        if self.position == self.keys[0].shape[2]:
            self._grow()
        tokens = mx.array(np.zeros((len(self.padding), 1), np.int32))
        position = mx.array([self.position], mx.int32)
        padding = mx.array(self.padding.astype(np.int32))
        return _Ahead(tokens, *self._step(tokens, position, padding, self.keys, self.values))

    def step(self, tokens: NDArray[np.int32]) -> mx.array:
        """Return the logits (B, V) after one more token of each row."""
        built, self._ahead = self._ahead or self._built(), None
        np.array(built.tokens, copy=False)[:, 0] = tokens
        self.keys, self.values = built.keys, built.values
        self.position += 1
        return built.logits

    def keep(self, positions: Ints) -> None:
        """Continue with these rows; the columns do not change."""
        self._ahead = None
        chosen = mx.array(positions.astype(np.int32))
        self.keys = [x[chosen] for x in self.keys]
        self.values = [x[chosen] for x in self.values]
        self.padding = self.padding[positions]

    def width(self, live: int) -> int:
        """Return the smallest batch size that holds the rows."""
        return next((size for size in WIDTHS if size >= live), 1 << (live - 1).bit_length())


def rollout(model: Any, request: table.Request) -> table.Rollout:
    """Roll out every requested row, by the batched path if the step cannot be compiled."""
    reason = why_not(model)
    if not reason and len(request.rows) and request.kv_bits is None:
        try:
            return _rollout(model, request)
        except RuntimeError as error:  # MLX compiles at the first evaluation, and raises this type if that fails
            if "ompile" not in str(error):
                raise
            reason = f"MLX could not compile the step: {error}"
            fixed.forget()
    result = batched.rollout(model, request)
    result.reason = reason
    return result


def _rollout(model: Any, request: table.Request) -> table.Rollout:
    result = table.Rollout.empty(request, "compiled")
    used, source = np.unique(table.prompts_of(request), return_inverse=True)
    prefilled = caches.together(model, [request.prompts[i] for i in used])
    steps = Compiled(model, prefilled, source)
    last = prefilled.last[mx.array(source.astype(np.int32))]
    decode.decode(steps, last, request, result, np.arange(len(source)))
    return result
