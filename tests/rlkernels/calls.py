"""One valid call of every function of `rlkernels`: what the tests of the boundary vary, one argument at a time.

`test_boundary.py` throws wrong objects at it, lays its arrays out in every way, checks its `out`, and calls it from several
threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.families.generators import generators
from gates_reference.kernels import KERNELS

#: What the generators of valid inputs are asked for. Arrays of the junk in test_boundary.py have the same shapes.
ROWS = {"shape": (4, 5), "layout": "holes", "empty": "last", "groups": (2, 3), "dtype": "float64"}


def usual(kernel: str, **choices: Any) -> dict[str, Any]:
    """The usual call of a kernel, with some choices."""
    return generators()[kernel].usual(**{**ROWS, **choices})


TOKEN_KL = usual("token_kl", layout="whole", off_policy=False, estimator="k2")
#: Function, then the keyword arguments of a valid call. Arrays of floats are float64.
EXAMPLES: dict[str, dict[str, Any]] = {
    **{kernel: usual(kernel) for kernel in KERNELS},
    "importance_ratio": usual("importance_ratio", level="seq_mean"),
    "sample_tokens": usual("sample_tokens", order="mlx-lm"),
    "available_isas": {},
    "build_info": {},
    "set_threads": {"threads": 2},
    "use_isa": {"isa": "scalar"},
}
#: Second calls, for layouts and options that exclude those of the first.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("token_kl", usual("token_kl", layout="lengths", off_policy=False, estimator="k1")),
    ("token_kl", usual("token_kl", layout="flat", off_policy=False, estimator="k2", reduction="mean")),
    (
        "token_kl",
        {**TOKEN_KL, "policy": TOKEN_KL["policy"][0], "reference": TOKEN_KL["reference"][0], "reduction": "sum"},
    ),
    ("policy_loss", usual("policy_loss", layout="lengths", algorithm="cispo", off_policy=False, kl_estimator=None)),
    ("importance_ratio", usual("importance_ratio", layout="flat")),
]

CALLS: list[tuple[str, dict[str, Any]]] = [*EXAMPLES.items(), *VARIANTS]


def flat(result: Any) -> list[Any]:
    """The arrays and numbers of a result, whatever holds them: a tuple, a dict, or an object with attributes."""
    if isinstance(result, tuple | list):
        return [leaf for part in result for leaf in flat(part)]
    if isinstance(result, Mapping):
        return [leaf for key in sorted(result) for leaf in flat(result[key])]
    if hasattr(result, "gradient"):
        return flat((result.loss, result.gradient, result.metrics))
    return [result]


def bits(result: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Type, shape and bytes of every part of a result."""
    return [(a.dtype.str, a.shape, a.tobytes()) for a in map(np.asarray, flat(result))]
