"""Textbook limits of a linear layer with a low-rank adapter, in the forms of libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from gates.arithmetic.bounded import where
from gates.arithmetic.number import Floats, Number, constant, number, widest


def lora_linear(
    x: npt.ArrayLike,
    *,
    weight: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    scale: float,
    kept: npt.ArrayLike,
    p: float,
) -> Mapping[str, Floats]:
    """Bound the rounding of y = x·Wᵀ + scale·(x·m/(1 − p))·A·B.

    Args:
        x: (N, I); its dtype is that of the layer.
        weight: (O, I), the base's.
        a: (I, r), of the adapter.
        b: (r, O), of the adapter.
        scale: the factor of the adapter.
        kept: (N, I) bool, true where an input of the adapter is kept.
        p: the probability of dropping, below 1.

    Returns:
        "y": (N, O), float64.

    Source: LoRA (arXiv 2106.09685), eq. 3; PEFT's `lora.Linear`; mlx-lm's `LoRALinear`; torch's dropout.
    """
    mask = np.asarray(kept)
    inputs, base, down, up = (number(array) for array in (x, weight, a, b))
    share = constant(1.0 - p, inputs.dtype).plus_relative(1.0)
    factor = constant(scale, inputs.dtype).plus_relative(1.0)
    below = _product(inputs, _transposed(base))
    forms = []
    for dropped in _dropped(inputs, mask, share):
        forms.append(below + factor * _product(_product(dropped, down), up))  # PEFT, mlx-lm
        forms.append(below + _product(_product(dropped, down) * factor, up))
    if p == 0.0 and mask.all():
        forms.append(_product(inputs, _transposed(base) + factor * _product(down, up)))  # merged into the base
    return {"y": widest(forms)}


def _dropped(x: Number, mask: npt.NDArray[np.bool_], share: Number) -> Iterator[Number]:
    yield where(mask, x / share, 0.0)
    yield where(mask, x * (1.0 / share), 0.0)  # torch and MLX multiply


def _product(left: Number, right: Number) -> Number:
    """Return the matrix product of (N, K) and (K, M)."""
    rows, inner = left.shape
    return (left.reshape(rows, inner, 1) * right.reshape(1, *right.shape)).sum(axis=1)


def _transposed(x: Number) -> Number:
    return Number(x.value.T, x.dtype, x.error.T, x.void.T)
