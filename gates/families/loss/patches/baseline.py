"""Mutations of the NumPy baseline's policy losses that are not edits; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation

TWO_SIDED = ("grpo", "dapo", "bnpo-trl", "dr_grpo")


@mutation
def own_aggregation(original: Fn, **inputs: Any) -> Any:
    """Use the algorithm's default aggregation for every setting."""
    return original(**{**inputs, "aggregation": None})


@mutation
def multiply_by_mask(_original: Fn, values: Any, mask: Any) -> Any:
    """Mask by multiplication: NaN · 0 is NaN."""
    with np.errstate(invalid="ignore"):
        return values * mask


@mutation
def dropped_rows_count(original: Fn, mask: Any, name: str, sizes: Any, eps: float) -> Any:
    """Count the width of fully masked rows in DAPO's and CISPO's denominators."""
    counted = np.where(mask.any(axis=1, keepdims=True), mask, True) if name == "group_size" else mask
    return original(counted, name, sizes, eps)


@mutation
def detached_mean(original: Fn, **inputs: Any) -> Any:
    """Divide the gradient by the row's tokens once more."""
    loss, gradient = original(**inputs)
    if inputs.get("mask") is None:
        return loss, gradient
    return loss, (gradient / np.maximum(inputs["mask"].sum(axis=1, keepdims=True), 1)).astype(gradient.dtype)


@mutation
def lowered_denominator(original: Fn, **inputs: Any) -> Any:
    """Count only tokens with a weight above 0."""
    weights, mask = inputs.get("weights"), inputs.get("mask")
    if weights is not None and mask is not None:
        inputs["mask"] = mask & ((weights if weights.ndim == 2 else weights[:, None]) != 0.0)
    return original(**inputs)


@mutation
def without_last_column(original: Fn, **inputs: Any) -> Any:
    """Leave out the last column."""
    mask = np.ones(inputs["policy"].shape, bool) if inputs.get("mask") is None else inputs["mask"].copy()
    mask[..., -1] = False
    return original(**{**inputs, "mask": mask})


@mutation
def float32_sum(_original: Fn, values: Any) -> Any:
    """Sum sequentially in float32."""
    return float(np.add.accumulate(values.reshape(-1).astype(np.float32), dtype=np.float32)[-1])


@mutation
def gain_times_infinity(_original: Fn, ratio: Any, advantage: Any) -> Any:
    """Multiply the ratio by the advantage, even inf by 0."""
    with np.errstate(invalid="ignore"):
        return ratio * advantage


@mutation
def cut_to_the_longest(original: Fn, **inputs: Any) -> Any:
    """Cut every array to the longest row, and return a gradient of that width."""
    shape = inputs["policy"].shape
    if inputs.get("lengths") is not None and len(shape) == 2:
        longest = int(inputs["lengths"].max())
        of_tokens = [name for name, x in inputs.items() if isinstance(x, np.ndarray) and x.shape == shape]
        inputs = {**inputs, **{name: inputs[name][:, :longest] for name in of_tokens}}
    return original(**inputs)


@mutation
def summed_without_mask(original: Fn, **inputs: Any) -> Any:
    """Leave out the denominator if there is neither a mask nor lengths."""
    loss, gradient = original(**inputs)
    tokens = inputs["policy"].size if inputs.get("mask") is None and inputs.get("lengths") is None else 1
    return loss * tokens, gradient * tokens


@mutation
def advantage_of_the_first(original: Fn, **inputs: Any) -> Any:
    """Give every row the advantage of the first row of its group of four."""
    advantages = inputs["advantages"]
    inputs["advantages"] = advantages[np.arange(len(advantages)) // 4 * 4]
    return original(**inputs)


@mutation
def discounted(original: Fn, values: Any, mask: Any) -> Any:
    """Weight slot t by 0.99 to the t."""
    kept = original(values, mask)
    return kept * 0.99 ** np.arange(np.shape(kept)[-1]) if np.ndim(kept) == 2 else kept


@mutation
def default_delta(original: Fn, **inputs: Any) -> Any:
    """Bound the ratio by 1.5 if no δ is given."""
    if inputs["algorithm"] in TWO_SIDED and inputs.get("delta") is None and inputs["epsilon_high"] < 0.5:
        inputs["delta"] = 1.5
    return original(**inputs)


@mutation
def zero_is_unset(original: Fn, **inputs: Any) -> Any:
    """Treat β = 0 as missing if there is a reference."""
    if inputs["algorithm"] != "rloo" and inputs.get("reference") is not None:
        inputs["beta"] = inputs.get("beta") or 0.04
    return original(**{**inputs, "kl_ratio": inputs.get("kl_ratio") or "none"})


@mutation
def weights_divided(original: Fn, **inputs: Any) -> Any:
    """Divide the weights by their sum."""
    if inputs.get("weights") is not None:
        inputs["weights"] = inputs["weights"] / inputs["weights"].sum()
    return original(**inputs)


def remembered(original: Fn) -> Fn:
    """Return the result of the first call with the same shape."""
    kept: dict[bytes, Any] = {}

    def mistaken(mask: Any, max_length: int) -> Any:
        return kept.setdefault(np.asarray(mask).tobytes(), original(mask, max_length))

    return mistaken


@mutation
def clamped(original: Fn, policy: Any, old: Any, *rest: Any) -> Any:
    """Clamp the log-ratio."""
    return original(old + np.clip(policy - old, -20.0, 20.0), old, *rest)
