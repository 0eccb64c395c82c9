"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Fn = Callable[..., Any]
TWO_SIDED = ("grpo", "dapo", "bnpo-trl", "dr_grpo")


def default_delta(original: Fn) -> Fn:
    """Bound the ratio by 1.5 unless another δ is given."""

    def mistaken(**inputs: Any) -> Any:
        if inputs["algorithm"] in TWO_SIDED and inputs.get("delta") is None and inputs["epsilon_high"] < 0.5:
            inputs["delta"] = 1.5
        return original(**inputs)

    return mistaken


def zero_is_unset(original: Fn) -> Fn:
    """Take β = 0 for a β that was not given, wherever there is a reference."""

    def mistaken(**inputs: Any) -> Any:
        if inputs["algorithm"] != "rloo" and inputs.get("reference") is not None:
            inputs["beta"] = inputs.get("beta") or 0.04
        return original(**{**inputs, "kl_ratio": inputs.get("kl_ratio") or "none"})

    return mistaken


def weights_divided(original: Fn) -> Fn:
    """Divide the weights by their sum."""

    def mistaken(**inputs: Any) -> Any:
        if inputs.get("weights") is not None:
            inputs["weights"] = inputs["weights"] / inputs["weights"].sum()
        return original(**inputs)

    return mistaken


def micro_batches_of_rows(original: Fn) -> Fn:
    """Average the rows of a micro-batch."""

    def mistaken(**inputs: Any) -> Any:
        if inputs["algorithm"] == "bnpo-trl":
            inputs = {**inputs, "algorithm": "grpo"}
        return original(**inputs)

    return mistaken
