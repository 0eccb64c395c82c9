"""Programs that compute in float32 whatever the dtype of their data.

Within `in_float32` a program on float64 data is bounded as one that casts: its data and constants are rounded to float32
once, which counts as an error of the input, and each operation rounds to float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
HALF_ULP = 2.0**-24  # of float32, relative
TINY = float(np.finfo(np.float32).tiny)
_narrowed: ContextVar[bool] = ContextVar("narrowed", default=False)


@contextmanager
def in_float32() -> Iterator[None]:
    """Bound the programs that run within as programs in float32."""
    token = _narrowed.set(True)
    try:
        yield
    finally:
        _narrowed.reset(token)


def of_half(values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return whether each value is a number of bfloat16 or of float16."""
    wide = np.ascontiguousarray(values, np.float32)
    with np.errstate(all="ignore"):
        held = (wide.view(np.uint32) & 0xFFFF == 0) | (wide.astype(np.float16) == wide)
    return np.asarray(held & np.isfinite(wide), np.bool_)


def narrowed() -> bool:
    """Whether programs are bounded as programs in float32 whatever their data."""
    return _narrowed.get()


def working(dtype: str) -> str:
    """Return the dtype in which a program on data of this dtype computes."""
    return "float32" if _narrowed.get() else dtype


def rounding(values: npt.ArrayLike) -> Floats:
    """Return the bound on the error of rounding each value to float32: 0 where it is exact."""
    wide = np.asarray(values, np.float64)
    with np.errstate(all="ignore"):
        exact = (wide.astype(np.float32) == wide) | ~np.isfinite(wide)
        return np.where(exact, 0.0, np.maximum(HALF_ULP * np.abs(wide), TINY))
