"""One valid call of every function of `rlkernels`: what the tests of the boundary vary, one argument at a time.

A new function needs an entry here; `test_boundary.py` then throws wrong objects at it, lays its arrays out in every way,
checks its `out`, and calls it from several threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _rows(low: float, high: float, seed: int) -> Array:
    return np.random.default_rng(seed).uniform(low, high, (4, 5))


def _logits() -> Array:
    return np.random.default_rng(7).normal(0, 2, (4, 9))


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 1]], bool)
LENGTHS = np.array([3, 5, 0, 1])

#: Function, then the keyword arguments of a valid call. Arrays of floats are float64.
EXAMPLES: dict[str, dict[str, Any]] = {
    "build_info": {},
    "filtered_logprobs": {
        "logits": _logits(),
        "order": "hf",
        "temperature": 0.8,
        "top_k": 7,
        "top_p": 0.95,
        "min_p": 0.01,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.05,
        "xtc_coin": np.array([0.1, 0.6, 0.4, 0.9]),
        "repetition_penalty": 1.3,
        "history": np.array([[3, -1], [0, 0], [8, 2], [1, 5]]),
    },
    "group_advantages": {"rewards": np.array([0.1, 0.5, 0.2, 1.0, 3.0, -1.0]), "group_size": 3},
    "pack_sequences": {"lengths": np.array([5, 1, 4, 2, 3]), "max_length": 6},
    "philox4x32_10": {"counter": np.arange(12).reshape(3, 4), "key": np.array([[1, 2], [3, 4], [5, 6]])},
    "sample_tokens": {
        "logits": _logits(),
        "uniforms": np.array([0.0, 0.3, 0.6, 0.9]),
        "order": "mlx-lm",
        "temperature": 1.2,
        "top_k": 7,
        "top_p": 0.95,
        "min_p": 0.01,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.05,
        "xtc_coin": np.array([0.1, 0.6, 0.4, 0.9]),
        "repetition_penalty": 0.8,
        "history": np.array([[3, -1], [0, 0], [8, 2], [1, 5]]),
    },
    "token_kl": {"policy": _rows(-4, 0, 1), "reference": _rows(-4, 0, 2), "estimator": "k3", "mask": MASK},
    "uniforms": {"seed": 7, "round_": 1, "prompt": np.array([2, 3, 4]), "sample": np.array([0, 1, 2]), "token": 5},
    "xtc_coins": {"seed": 7, "round_": np.array([1, 0, 2]), "prompt": 2, "sample": 0, "token": np.array([4, 5, 6])},
}

#: Second calls, for layouts and options that exclude those of the first.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("token_kl", {"policy": _rows(-4, 0, 1), "reference": _rows(-4, 0, 2), "estimator": "k1", "lengths": LENGTHS}),
    (
        "token_kl",
        {
            "policy": _rows(-4, 0, 1)[0],
            "reference": _rows(-4, 0, 2)[0],
            "estimator": "k2",
            "lengths": np.array([2, 0, 3]),
            "reduction": "mean",
        },
    ),
    (
        "token_kl",
        {"policy": _rows(-4, 0, 1)[0], "reference": _rows(-4, 0, 2)[0], "estimator": "k2", "reduction": "sum"},
    ),
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
