"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def _swapped(inputs: dict[str, Any], first: str, second: str) -> dict[str, Any]:
    return {**inputs, first: inputs.get(second), second: inputs.get(first)}


def denominators_swapped(original: Fn) -> Fn:
    """Average over the step for over prompts, and the other way round."""

    def mistaken(**inputs: Any) -> Any:
        other = {"global": "group", "group": "global"}
        asked = str(inputs.get("dapo_denominator"))
        return original(**{**inputs, "dapo_denominator": other.get(asked, asked), "group_size": 4})

    return mistaken


def dropped_rows_count(original: Fn) -> Fn:
    """Count the whole width of a row that the mask leaves out, in DAPO's and CISPO's denominators."""

    def mistaken(mask: Any, name: str, sizes: Any) -> Any:
        counted = np.where(mask.any(axis=1, keepdims=True), mask, True) if name == "group_size" else mask
        return original(counted, name, sizes)

    return mistaken


def window_forgotten(original: Fn) -> Fn:
    """Divide by the window's own tokens."""

    def mistaken(**inputs: Any) -> Any:
        if inputs.get("dapo_denominator") == "trl":
            inputs["dapo_denominator"] = "global"
        return original(**inputs)

    return mistaken


def sides_swapped(original: Fn) -> Fn:
    """Swap the widths of the clip."""
    return lambda **inputs: original(**_swapped(inputs, "epsilon_low", "epsilon_high"))


def delta_forgotten(original: Fn) -> Fn:
    """Leave the second bound out."""
    return lambda **inputs: original(**{**inputs, "delta": None})


def delta_for_gains(original: Fn) -> Fn:
    """Take δ for the upper bound of every sign."""

    def mistaken(ratio: Any, gain: Any, low: float, high: float, cap: float) -> Any:
        return original(ratio, gain, low, cap if np.isfinite(cap) else high, cap)

    return mistaken


def detached_mean(original: Fn) -> Fn:
    """Divide the gradient by the row's tokens once more."""

    def mistaken(**inputs: Any) -> Any:
        loss, gradient = original(**inputs)
        if inputs.get("mask") is None:
            return loss, gradient
        return loss, (gradient / np.maximum(inputs["mask"].sum(axis=1, keepdims=True), 1)).astype(gradient.dtype)

    return mistaken


def row_advantage(original: Fn) -> Fn:
    """Share the mean of a row's advantages."""

    def mistaken(**inputs: Any) -> Any:
        advantages, mask = inputs["advantages"], inputs.get("mask")
        if mask is not None and advantages.shape == mask.shape:
            inputs["advantages"] = (advantages * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1).astype(
                advantages.dtype
            )
        return original(**inputs)

    return mistaken


def token_ratio_for_sequence(original: Fn) -> Fn:
    """Weigh every token with its own ratio."""
    return lambda **inputs: original(**{**inputs, "algorithm": "grpo"})


def cispo_bounds_swapped(original: Fn) -> Fn:
    """Take the other meaning of the cap."""

    def mistaken(**inputs: Any) -> Any:
        other = {"relative": "absolute", "absolute": "relative"}
        return original(**{**inputs, "cispo_bound": other.get(str(inputs.get("cispo_bound")))})

    return mistaken


def live_ratio(original: Fn) -> Fn:
    """Differentiate through the truncated ratio: d(r·lp) = r·(lp + 1) where it is not capped."""

    def mistaken(step: Any, cap: float) -> Any:
        value, slope = original(step, cap)
        return value, np.where(np.exp(step.lp - step.old) <= cap, slope * (1.0 + step.lp), slope)

    return mistaken


def clipped_away(original: Fn) -> Fn:
    """Drop what the cap truncates."""

    def mistaken(step: Any, cap: float) -> Any:
        value, slope = original(step, cap)
        kept = np.exp(step.lp - step.old) <= cap
        return np.where(kept, value, 0.0), np.where(kept, slope, 0.0)

    return mistaken


def temperatures_swapped(original: Fn) -> Fn:
    """Swap SAPO's temperatures."""
    return lambda **inputs: original(**_swapped(inputs, "sapo_temperature_positive", "sapo_temperature_negative"))


def unnormalised_gate(original: Fn) -> Fn:
    """Leave out 4/τ."""

    def mistaken(ratio: Any, excess: Any, temperature: Any) -> Any:
        value, slope = original(ratio, excess, temperature)
        return value * temperature / 4.0, slope * temperature / 4.0

    return mistaken


def gate_of_log_ratio(original: Fn) -> Fn:
    """Open the gate with log r."""
    return lambda ratio, excess, temperature: original(ratio, np.log1p(excess), temperature)


def linear_clip(original: Fn) -> Fn:
    """Clip the ratio at 1 ± ε."""
    return lambda moved, gain, low, high: original(moved, gain, -np.log1p(-low), np.log1p(high))


def both_sides(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Clip both sides whatever the sign."""

    def mistaken(moved: Any, gain: Any, low: float, high: float) -> Any:
        del gain
        q = np.clip(moved, -low, high)
        return q, q == moved

    return mistaken


def luspo_as_gspo(original: Fn) -> Fn:
    """Average rows without their length."""
    return lambda **inputs: original(**{**inputs, "algorithm": "gspo"})


def mean_kl(original: Fn) -> Fn:
    """Average a row's KL over its tokens."""

    def mistaken(step: Any, *rest: Any) -> Any:
        return tuple(part / np.maximum(step.tokens, 1) for part in original(step, *rest))

    return mistaken


def estimators_swapped(original: Fn) -> Fn:
    """Swap k1 and k2."""
    return lambda d, lost, estimator: original(d, lost, {"k1": "k2", "k2": "k1"}.get(estimator, estimator))


def kl_levels_swapped(original: Fn) -> Fn:
    """Take the ratio of the other level."""

    def mistaken(step: Any, reference: Any, estimator: Any, kl_ratio: str) -> Any:
        other = {"token": "sequence", "sequence": "token"}
        return original(step, reference, estimator, other.get(kl_ratio, kl_ratio))

    return mistaken


def kl_ratio_constant(original: Fn) -> Fn:
    """Hold the ratio constant that multiplies the KL."""

    def mistaken(step: Any, reference: Any, estimator: Any, kl_ratio: str) -> Any:
        value, slope = original(step, reference, estimator, kl_ratio)
        if kl_ratio != "token":
            return value, slope
        return value, np.exp(step.lp - step.old) * original(step, reference, estimator, "none")[1]

    return mistaken


def lowered_denominator(original: Fn) -> Fn:
    """Count only what has a weight."""

    def mistaken(**inputs: Any) -> Any:
        weights, mask = inputs.get("weights"), inputs.get("mask")
        if weights is not None and mask is not None:
            inputs["mask"] = mask & ((weights if weights.ndim == 2 else weights[:, None]) != 0.0)
        return original(**inputs)

    return mistaken


def weights_on_kl(original: Fn) -> Fn:
    """Weigh surrogate and KL alike."""

    def mistaken(**inputs: Any) -> Any:
        weights, beta = inputs.get("weights"), inputs.get("beta")
        if weights is None or not beta:
            return original(**inputs)
        alone = original(**{**inputs, "beta": 0.0})
        bare = {**inputs, "weights": None}
        kl = [a - b for a, b in zip(original(**bare), original(**{**bare, "beta": 0.0}), strict=True)]
        spread = weights if weights.ndim == 2 else weights[:, None]
        return alone[0] + kl[0] * float(np.mean(weights)), alone[1] + (kl[1] * spread).astype(alone[1].dtype)

    return mistaken


def weights_forgotten(original: Fn) -> Fn:
    """Leave the weights out."""
    return lambda **inputs: original(**{**inputs, "weights": None})


def without_last_column(original: Fn) -> Fn:
    """Leave out what stands in the last column."""

    def mistaken(**inputs: Any) -> Any:
        mask = np.ones(inputs["policy"].shape, bool) if inputs.get("mask") is None else inputs["mask"].copy()
        mask[..., -1] = False
        return original(**{**inputs, "mask": mask})

    return mistaken


def without_last_token(original: Fn) -> Fn:
    """End every row one token early."""

    def mistaken(**inputs: Any) -> Any:
        if inputs.get("mask") is not None:
            mask = inputs["mask"]
            later = np.zeros_like(mask)
            later[:, :-1] = np.cumsum(mask[:, :0:-1], axis=1)[:, ::-1] > 0
            inputs["mask"] = mask & later
        return original(**inputs)

    return mistaken


def float32_sum(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Add one by one in float32."""
    return lambda values: float(np.add.accumulate(values.reshape(-1).astype(np.float32), dtype=np.float32)[-1])


def negated(original: Fn) -> Fn:
    """Turn the sign of the loss and of its gradient."""

    def mistaken(**inputs: Any) -> Any:
        loss, gradient = original(**inputs)
        return -loss, -gradient

    return mistaken


def negated_term(original: Fn) -> Fn:
    """Turn the sign of a term and of its slope."""

    def mistaken(*inputs: Any) -> Any:
        value, slope = original(*inputs)
        return -value, -slope

    return mistaken


def floor_at_epsilon(original: Fn) -> Fn:
    """Hold the ratio above ε instead of 1 − ε."""
    return lambda ratio, gain, low, high, cap: original(ratio, gain, 1.0 - low, high, cap)


def gain_times_infinity(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Multiply the ratio by the gain, whatever they are."""

    def mistaken(ratio: Any, gain: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return ratio * gain

    return mistaken


def cut_to_the_longest(original: Fn) -> Fn:
    """Cut every array to the longest row, and return a gradient of that width."""

    def mistaken(**inputs: Any) -> Any:
        shape = inputs["policy"].shape
        if inputs.get("lengths") is not None and len(shape) == 2:
            longest = int(inputs["lengths"].max())
            of_tokens = [name for name, x in inputs.items() if isinstance(x, np.ndarray) and x.shape == shape]
            inputs = {**inputs, **{name: inputs[name][:, :longest] for name in of_tokens}}
        return original(**inputs)

    return mistaken


def summed_without_mask(original: Fn) -> Fn:
    """Divide by nothing where there is neither a mask nor lengths."""

    def mistaken(**inputs: Any) -> Any:
        loss, gradient = original(**inputs)
        tokens = inputs["policy"].size if inputs.get("mask") is None and inputs.get("lengths") is None else 1
        return loss * tokens, gradient * tokens

    return mistaken
