"""Mutations of the special cases in which losses agree; loaded in workers only."""

from __future__ import annotations

from typing import Any

from gates.families.patching import Fn, mutation

TWO_SIDED = ("grpo", "dapo", "bnpo-trl", "dr_grpo")


@mutation
def default_delta(original: Fn, **inputs: Any) -> Any:
    """Bound the ratio by 1.5 unless another δ is given."""
    if inputs["algorithm"] in TWO_SIDED and inputs.get("delta") is None and inputs["epsilon_high"] < 0.5:
        inputs["delta"] = 1.5
    return original(**inputs)


@mutation
def zero_is_unset(original: Fn, **inputs: Any) -> Any:
    """Take β = 0 for a β that was not given, wherever there is a reference."""
    if inputs["algorithm"] != "rloo" and inputs.get("reference") is not None:
        inputs["beta"] = inputs.get("beta") or 0.04
    return original(**{**inputs, "kl_ratio": inputs.get("kl_ratio") or "none"})


@mutation
def weights_divided(original: Fn, **inputs: Any) -> Any:
    """Divide the weights by their sum."""
    if inputs.get("weights") is not None:
        inputs["weights"] = inputs["weights"] / inputs["weights"].sum()
    return original(**inputs)


@mutation
def micro_batches_of_rows(original: Fn, **inputs: Any) -> Any:
    """Average the rows of a micro-batch."""
    if inputs["algorithm"] == "bnpo-trl":
        inputs = {**inputs, "algorithm": "grpo"}
    return original(**inputs)
