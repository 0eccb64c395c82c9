"""Calls rlox's kernels and prints what they return, as JSON.

Run by an interpreter that has rlox and NumPy; the calls are read by `tests/rlkernels/test_compat.py` too, which makes
the same ones of `rlkernels.compat.rlox`:

    python tests/rlkernels/rlox/record.py > tests/rlkernels/rlox/rlox-1.2.0.json
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import sys
from typing import Any

import numpy as np

#: Two distributions over three tokens, and log-probabilities of four sampled tokens.
P, Q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
POLICY, REFERENCE = [-1.0, -2.0, -0.5, -3.0], [-1.5, -1.0, -0.5, -2.0]
SHORT = [[1, 2, 3], [4, 5], [14], [15, 16], [7, 7, 7, 7]]

#: Name of the call: function, arguments. Lists of floats become float64 arrays, or float32 for a function in `_f32`.
CALLS: dict[str, tuple[str, list[Any]]] = {
    "advantages": ("compute_group_advantages", [[1.0, 2.0, 3.0]]),
    "advantages of equal rewards": ("compute_group_advantages", [[0.35] * 6]),
    "advantages of almost equal rewards": ("compute_group_advantages", [[1e-9, 0.0, 3e-9]]),
    "advantages with a reward that was not given": ("compute_group_advantages", [[1.0, float("nan"), 3.0]]),
    "advantages of groups": ("compute_batch_group_advantages", [[0.0, 1.0, 5.0, 5.0, 2.0, 4.0], 2]),
    "advantages of groups that do not divide": ("compute_batch_group_advantages", [[0.0, 1.0, 5.0], 2]),
    "kl of the vocabulary": ("compute_token_kl", [np.log(P).tolist(), np.log(Q).tolist()]),
    "kl of the vocabulary, f32": ("compute_token_kl_f32", [np.log(P).tolist(), np.log(Q).tolist()]),
    "kl of an impossible token": ("compute_token_kl", [[-math.inf, -1.0], [-1.0, -1.5]]),
    "kl of batch with an impossible token": ("compute_batch_token_kl", [[-math.inf, *POLICY[1:]], REFERENCE, 2]),
    "kl of batch": ("compute_batch_token_kl", [POLICY, REFERENCE, 2]),
    "kl of batch, f32": ("compute_batch_token_kl_f32", [POLICY, REFERENCE, 2]),
    "schulman": ("compute_token_kl_schulman", [POLICY, REFERENCE]),
    "schulman, f32": ("compute_token_kl_schulman_f32", [POLICY, REFERENCE]),
    "schulman of batch": ("compute_batch_token_kl_schulman", [POLICY, REFERENCE, 2]),
    "schulman of batch, f32": ("compute_batch_token_kl_schulman_f32", [POLICY, REFERENCE, 2]),
    **{
        f"schulman of token {v}": ("compute_token_kl_schulman", [[float(np.log(P[v]))], [float(np.log(Q[v]))]])
        for v in range(3)
    },
    "schulman of close values, f32": ("compute_token_kl_schulman_f32", [[-1.0], [-1.001]]),
    "schulman of different lengths": ("compute_token_kl_schulman", [POLICY, REFERENCE[:2]]),
    "packing": ("pack_sequences", [SHORT, 6]),
    "packing with room left": ("pack_sequences", [[[1, 2], [3]], 5]),
    "packing of a long sequence": ("pack_sequences", [[[1, 2, 3, 4]], 3]),
}


def arrays(function: str, values: list[Any]) -> list[Any]:
    """The arguments as the function wants them."""
    if function == "pack_sequences":
        return [[np.array(ids, np.uint32) for ids in values[0]], values[1]]
    dtype = np.float32 if function.endswith("_f32") else np.float64
    return [np.array(value, dtype) if isinstance(value, list) else value for value in values]


def plain(value: Any) -> Any:
    """JSON that keeps the types apart; numbers that are not finite are strings."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def outcomes(module: Any) -> dict[str, Any]:
    """What every call returns, or the name of the exception that it raises."""
    found = {}
    for name, (function, values) in CALLS.items():
        try:
            found[name] = plain(getattr(module, function)(*arrays(function, values)))
        except (TypeError, ValueError, RuntimeError) as error:
            found[name] = {"raised": f"{type(error).__name__}: {error}"}
    return found


if __name__ == "__main__":
    record = {"rlox": importlib.metadata.version("rlox"), "outcomes": outcomes(importlib.import_module("rlox"))}
    json.dump(record, sys.stdout, indent=1)
    sys.stdout.write("\n")
