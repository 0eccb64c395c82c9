"""Shared by adapters of any framework: layouts of rows, and the refusal of conventions that a peer lacks.

It is copied next to an adapter, since Gates is not installed in a peer's environment. It has no formula of any op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Answer = dict[str, Any]


def only(op: str, known: Mapping[str, tuple[Any, ...]], **requested: Any) -> None:
    """Refuse a choice that the peer does not have, by the adapter's own CONVENTIONS.

    Raises:
        NotImplementedError: a declared convention has another value.
    """
    for name, choice in requested.items():
        if name in known and choice not in known[name]:
            raise NotImplementedError(f"{op} of this library has {name} {known[name]}, not {choice!r}")


def absent(op: str, **inputs: Any) -> None:
    """Refuse inputs for which the peer's function has no parameter.

    Raises:
        NotImplementedError: one of them is neither None nor False nor 0.
    """
    for name, value in inputs.items():
        if value is not None and not (isinstance(value, (bool, int, float)) and not value):
            raise NotImplementedError(f"{op} of this library takes no {name}")


def mask_of(values: Array, mask: Array | None, lengths: Array | None) -> Array:
    """Return the (B, T) bool mask of rows given as (B, T) with a mask, lengths or neither, or as flat (N,) with lengths."""
    if values.ndim == 1:
        assert lengths is not None
        return np.arange(max(int(lengths.max(initial=0)), 1)) < lengths[:, None]
    if mask is not None:
        return np.asarray(mask, bool)
    if lengths is not None:
        return np.arange(values.shape[1]) < lengths[:, None]
    return np.ones(values.shape, bool)


def grid(values: Array | None, mask: Array, fill: float = 0.0) -> Array | None:
    """Return (N,) values as (B, T), `fill` outside the mask; (B, T) and (B,) values unchanged."""
    if values is None or values.shape in {mask.shape, mask.shape[:1]}:
        return values
    filled = np.full(mask.shape, fill, values.dtype)
    filled[mask] = values
    return filled


def ungrid(values: Array, like: Array, mask: Array) -> Array:
    """Return (B, T) values in the layout of `like`: the inverse of `grid`."""
    return values if like.shape == values.shape else values[mask]


def row_tokens(values: Array, mask: Array) -> list[Array]:
    """Return each row's tokens, of (B, T) values or of flat (N,) ones."""
    tokens = values if values.ndim == 1 else values[mask]
    return np.split(tokens, np.cumsum(mask.sum(axis=1)))[:-1]


def micro_batches(rows: Mapping[str, Any], sizes: Sequence[int]) -> list[tuple[slice, dict[str, Any]]]:
    """Return each micro-batch's place and its rows; None and what has no rows is in each."""
    ends = np.cumsum(sizes)
    places = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return [(at, {name: v[at] if getattr(v, "ndim", 0) else v for name, v in rows.items()}) for at in places]


def log_ratio_rows(
    function: Callable[[Array, Array], Any], left: Array, right: Array, mask: Array | None, lengths: Array | None
) -> Array:
    """Call a function of two sequences' log-probs for each row's tokens; return its results (B,)."""
    where = mask_of(left, mask, lengths)
    pairs = zip(row_tokens(left, where), row_tokens(right, where), strict=True)
    return np.array([float(function(*pair)) for pair in pairs])
