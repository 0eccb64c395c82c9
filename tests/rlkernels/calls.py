"""One valid call of every function of `rlkernels`: what the tests of the boundary vary, one argument at a time.

A kernel without an entry here is called as a case of its gate does. `test_boundary.py` throws wrong objects at it, lays its arrays out in every way,
checks its `out`, and calls it from several threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.registry import load
from reference.kernels import KERNELS

Array = np.ndarray[Any, Any]


def _rows(low: float, high: float, seed: int) -> Array:
    return np.random.default_rng(seed).uniform(low, high, (4, 5))


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 1]], bool)
LENGTHS = np.array([3, 5, 0, 1])


def _logprobs(seed: int) -> Array:
    logits = np.random.default_rng(seed).normal(0, 2, (4, 9))
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))


POLICY, REFERENCE, OLD = _rows(-4, 0, 1), _rows(-4, 0, 2), _rows(-4, 0, 3)
ADVANTAGES = np.array([1.0, -0.5, 2.0, -1.5])
LOGITS = np.random.default_rng(7).normal(0, 2, (4, 9))
FILTER = {
    "top_k": 7,
    "top_p": 0.95,
    "min_p": 0.01,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.05,
    "xtc_coin": np.array([0.1, 0.6, 0.4, 0.9]),
    "history": np.array([[3, -1], [0, 0], [8, 2], [1, 5]]),
}

#: Function, then the keyword arguments of a valid call. Arrays of floats are float64.
EXAMPLES: dict[str, dict[str, Any]] = {
    "available_isas": {},
    "build_info": {},
    "filtered_logprobs": {"logits": LOGITS, "order": "hf", "temperature": 0.8, "repetition_penalty": 1.3, **FILTER},
    "full_kl": {"policy_logprobs": _logprobs(4), "reference_logprobs": _logprobs(5)},
    "group_advantages": {"rewards": np.array([0.1, 0.5, 0.2, 1.0, 3.0, -1.0]), "group_size": 3},
    "importance_ratio": {"policy": POLICY, "old": OLD, "level": "seq_mean", "mask": MASK},
    "importance_weights": {
        "old": OLD,
        "sampling": REFERENCE,
        "correction": "tis",
        "level": "token",
        "c_max": 2.0,
        "mask": MASK,
    },
    "normalise_then_sum": {
        "rewards": np.random.default_rng(6).normal(size=(6, 2)),
        "weights": np.array([1.0, 0.5]),
        "group_size": 3,
        "group_ddof": 1,
        "group_eps": 1e-4,
        "batch_ddof": 1,
        "batch_eps": 1e-4,
    },
    "pack_sequences": {"lengths": np.array([5, 1, 4, 2, 3]), "max_length": 6},
    "philox4x32_10": {
        "counter": np.arange(12, dtype=np.uint32).reshape(3, 4),
        "key": np.arange(6, dtype=np.uint32).reshape(3, 2),
    },
    "policy_loss": {
        "policy": POLICY,
        "old": OLD,
        "reference": REFERENCE,
        "advantages": ADVANTAGES,
        "mask": MASK,
        "algorithm": "grpo",
        "epsilon_low": 0.2,
        "epsilon_high": 0.3,
        "beta": 0.1,
    },
    "ratio_statistics": {
        "policy": POLICY,
        "behaviour": OLD,
        "epsilon_low": 0.2,
        "epsilon_high": 0.3,
        "advantages": ADVANTAGES,
        "mask": MASK,
    },
    "sample_tokens": {
        "logits": LOGITS,
        "uniforms": np.array([0.0, 0.3, 0.6, 0.9]),
        "order": "mlx-lm",
        "temperature": 1.2,
        "repetition_penalty": 0.8,
        **FILTER,
    },
    "selective_log_softmax": {"logits": LOGITS, "ids": np.array([0, 8, 3, 3]), "entropy": True},
    "selective_log_softmax_backward": {"logits": LOGITS, "ids": np.array([0, 8, 3, 3]), "grad_logprobs": ADVANTAGES},
    "set_threads": {"threads": 2},
    "token_kl": {"policy": POLICY, "reference": REFERENCE, "estimator": "k3", "mask": MASK},
    "uniforms": {"seed": 7, "round_": 1, "prompt": np.array([2, 3, 4]), "sample": np.array([0, 1, 2]), "token": 5},
    "use_isa": {"isa": "scalar"},
    "xtc_coins": {"seed": 7, "round_": np.array([1, 0, 2]), "prompt": 2, "sample": 0, "token": np.array([4, 5, 6])},
}


def _from_a_gate(kernel: str) -> dict[str, Any]:
    """The first float64 case of the first gate of an op, without what it leaves open."""
    gate = next(gate for gate in load().gates.values() if gate.ops[0].name == kernel)
    case = next(case for case in gate.cases if case.conventions.get("dtype") == "float64")
    return {name: value for name, value in case.make(np.random.default_rng(0)).items() if value is not None}


EXAMPLES |= {kernel: _from_a_gate(kernel) for kernel in KERNELS if kernel not in EXAMPLES}
#: Second calls, for layouts and options that exclude those of the first.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("token_kl", {"policy": POLICY, "reference": REFERENCE, "estimator": "k1", "lengths": LENGTHS}),
    (
        "token_kl",
        {
            "policy": POLICY[0],
            "reference": REFERENCE[0],
            "estimator": "k2",
            "lengths": np.array([2, 0, 3]),
            "reduction": "mean",
        },
    ),
    ("token_kl", {"policy": POLICY[0], "reference": REFERENCE[0], "estimator": "k2", "reduction": "sum"}),
    (
        "policy_loss",
        {"policy": POLICY, "advantages": _rows(-1, 1, 8), "lengths": LENGTHS, "algorithm": "cispo", "epsilon_high": 0.3}
        | {"cispo_bound": "relative", "dapo_denominator": "global"},
    ),
    (
        "importance_ratio",
        {"policy": POLICY[0], "old": OLD[0], "level": "token", "lengths": np.array([2, 0, 3])},
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
