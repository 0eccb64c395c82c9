"""A linear layer with a low-rank adapter, and the size of an honest error of its output."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import lora as definition
from gates_reference.oracle.inputs import Floats, floats, number


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The output (N, O), and S of each element: the sum of |terms| that were added."""

    y: Floats
    scale: Floats


def lora_linear(
    x: npt.ArrayLike,
    *,
    weight: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    scale: float,
    kept: npt.ArrayLike,
    p: float,
) -> Output:
    """Compute the output of the layer under a given mask.

    Args:
        x: (N, I) inputs.
        weight: (O, I), the base's.
        a: (I, r), of the adapter.
        b: (r, O), of the adapter.
        scale: the factor of the adapter.
        kept: (N, I) bool, which inputs of the adapter are kept.
        p: the probability of dropping, from 0 to below 1.

    Returns:
        `Output`.

    Raises:
        ValueError: shapes that do not fit, or p outside [0, 1).

    Source: LoRA (arXiv 2106.09685), eq. 3; PEFT's `lora_dropout`.
    """
    number("p", p, least=0)
    if p >= 1:
        raise ValueError(f"`p` is {p}, must be below 1")
    inputs = floats("x", x, ndim=2)
    base = floats("weight", weight, ndim=2)
    down = floats("a", a, ndim=2)
    up = floats("b", b, shape=(down.shape[1], len(base)))
    mask = np.asarray(kept)
    if mask.dtype != np.bool_ or mask.shape != inputs.shape:
        raise ValueError(f"`kept` has dtype {mask.dtype} and shape {mask.shape}, must be bool and {inputs.shape}")
    y = definition.lora(inputs, base, down, up, scale=scale, kept=mask, p=p)
    sizes = definition.lora(*(np.abs(one) for one in (inputs, base, down, up)), scale=abs(scale), kept=mask, p=p)
    return Output(y, sizes)
