"""The NumPy baseline: a careful user's implementation in the dtype of the data.

Narrow data is widened to float64 and rounded once at the end; float64 differences are kept with their rounding error.
Many functions are small so that `gates prove` can mutate one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import advantages, kl, logprobs, lora, loss, packing, preference, ratio, sampling
from gates_reference.kernels import KERNELS

if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS = {"numpy": np.__version__}
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "group_advantages": {
        "nan_rewards": ("unscored",),
        "baseline": ("mean", "leave-one-out", "batch", "none"),
    },
    "normalise_then_sum": {"nan_rewards": ("unscored",)},
    "importance_weights": {"nan_sampling": ("unrecorded",)},
    "token_kl": {"kl_clamp": (None, 10.0)},
    **{op: {"ties": ("library", "all", "lower-id")} for op in ("filtered_logprobs", "sample_tokens")},
    "policy_loss": {
        "algorithm": tuple(loss.PRESETS),
        "clipped": (False, True),
        "lower_bound": (False, True),
        "kl_clamp": (None, 10.0),
        "count_eps": (0.0, 1e-4),
        "kl_aggregation": ("same", "row-mean", "row-sum", "token-mean"),
        "ratio_level": (None, "token", "seq_mean", "seq_mean_token", "seq_sum", "none"),
        "bound": (None, *loss.BOUNDS),
        "aggregation": (None, *loss.ROW_WEIGHTS),
    },
    "loss_of_completions": {"algorithm": tuple(loss.PRESETS)},
    "prefer": {"ties": ("first",), "nan_rewards": ("unscored",)},
    "best_of_n": {"ties": ("first",), "nan_rewards": ("unscored",)},
    "pack_sequences": {"order": ("as-placed",)},
}


MODULES = (advantages, kl, logprobs, loss, lora, packing, preference, ratio, sampling)
OUTPUTS = {  # outputs of each op in order, unless its function returns a dict
    **{name: kernel.outputs for name, kernel in KERNELS.items()},
    "preference_loss": ("loss", "gradient"),
    "kto_loss": ("loss", "gradient"),
    "loss_of_completions": ("loss", "gradient"),
    "lora_linear": ("y", "kept"),
    "prefer": ("signs",),
    "best_of_n": ("rows",),
}


def _operation(name: str) -> Callable[..., dict[str, Any]]:
    """Return the op that calls the function of its name, looked up at each call since `gates prove` may replace it."""
    (module,) = (module for module in MODULES if hasattr(module, name))

    def operation(**inputs: Any) -> dict[str, Any]:
        result = getattr(module, name)(**inputs)
        if isinstance(result, dict):
            return result
        return dict(zip(OUTPUTS[name], result if isinstance(result, tuple) else (result,), strict=False))

    return operation


OPS: dict[str, Callable[..., dict[str, Any]]] = {name: _operation(name) for name in OUTPUTS}
CONVENTIONS = {op: {"arithmetic": ("float64",), **CHOICES.get(op, {})} for op in OPS}  # float32 would not be right
