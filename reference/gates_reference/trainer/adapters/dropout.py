"""Dropout of an adapter's input, in the forward passes of updates only.

    y = x W + scale (x m / (1 - p)) A B,    m of each element 0 with probability p, else 1

As in PEFT, the base's own path and embeddings have none. Masks are a function of the numbers given to `drawn`, of the adapter's place
and of the input's shape. They have no state, unlike those of `mlx.nn.Dropout`: a checkpointed layer that is computed again drops the
same elements, and a resumed run those of one that was not killed.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray


class Dropout(nn.Module):
    """Dropout with probability `p` while it has a key; otherwise the identity."""

    def __init__(self, p: float) -> None:
        """Start without a key."""
        super().__init__()
        self.p = p
        self._key: mx.array | None = None
        self._shape: tuple[int, ...] | None = None
        self._piece: tuple[int, int] | None = None

    def __call__(self, x: mx.array) -> mx.array:
        """Return x of any shape with elements dropped and the others divided by 1 - p."""
        if self._key is None:
            return x
        shape, start = list(x.shape), 0
        if self._piece is not None:
            start, shape[-2] = self._piece
        self._shape = tuple(shape)
        kept = mx.random.bernoulli(1.0 - self.p, self._shape, key=self._key)
        if self._piece is not None:
            kept = kept[..., start : start + x.shape[-2], :]
        return mx.where(kept, x * (1.0 / (1.0 - self.p)), mx.zeros((), x.dtype))

    def use(self, key: mx.array | None) -> None:
        """Draw masks by this key from now on; None switches dropout off."""
        self._key = key
        self._shape = None

    def take(self, piece: tuple[int, int] | None) -> None:
        """Take the next inputs as rows from `start` of an input with `rows`, given as (start, rows); None: as whole."""
        self._piece = piece

    def mask(self) -> mx.array | None:
        """Return which elements of the last input are kept by the key in use, drawn again; None if there was no input."""
        if self._key is None or self._shape is None:
            return None
        return mx.random.bernoulli(1.0 - self.p, self._shape, key=self._key)


@contextlib.contextmanager
def drawn(model: Any, *numbers: int) -> Iterator[None]:
    """Drop inputs of the model's adapters inside the block, with masks that are a function of these numbers, all >= 0."""
    modules = sorted((name, module) for name, module in model.named_modules() if isinstance(module, Dropout))
    words = np.random.SeedSequence(numbers).generate_state(len(modules), np.uint64)
    try:
        for (_, module), word in zip(modules, words.tolist(), strict=True):
            module.use(mx.random.key(word))
        yield
    finally:
        for _, module in modules:
            module.use(None)


@contextlib.contextmanager
def piece(model: Any, start: int, rows: int) -> Iterator[None]:
    """Drop what would be dropped of an input with `rows` rows, whose rows from `start` the adapters see inside the block."""
    modules = [module for _, module in model.named_modules() if isinstance(module, Dropout)]
    for module in modules:
        module.take((start, rows))
    try:
        yield
    finally:
        for module in modules:
            module.take(None)


def masks(model: Any) -> dict[str, NDArray[np.bool_]]:
    """Return by the path of its layer which elements of an adapter's input are kept; to be called inside `drawn`."""
    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, Dropout)]
    drawn_again = {name.removesuffix(".dropout"): module.mask() for name, module in modules}
    return {name: np.array(mask) for name, mask in drawn_again.items() if mask is not None}
