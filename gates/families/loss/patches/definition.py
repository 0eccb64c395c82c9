"""Mutations of the NumPy baseline's policy losses; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation, with_keywords


@mutation
def multiply_by_mask(_original: Fn, values: Any, mask: Any) -> Any:
    """Mask by multiplication: NaN · 0 is NaN."""
    with np.errstate(invalid="ignore"):
        return values * mask


@mutation
def keep_padding(_original: Fn, values: Any, mask: Any) -> Any:
    """Mask nothing."""
    return values + 0.0 * mask


@mutation
def padded_length(original: Fn, mask: Any, max_length: int) -> Any:
    """Divide Dr. GRPO by the longest completion of the batch instead of the configured L_max."""
    del max_length
    return original(mask, mask.shape[1])


@mutation
def constant_ratio(original: Fn, policy: Any, old: Any, *rest: Any) -> Any:
    """Recompute `old` from the policy of this very step, so that every ratio is 1."""
    del old
    return original(policy, policy, *rest)


@mutation
def one_micro_batch(original: Fn, **inputs: Any) -> Any:
    """Average over the whole batch where TRL's bnpo averages each micro-batch."""
    return original(**{**inputs, "micro_batches": [inputs["policy"].shape[0]]})


per_row_mean = with_keywords(algorithm="grpo")  # average each row, then the rows
inert_clip = with_keywords(epsilon_low=0.99, epsilon_high=1e6)  # clip with bounds that never act
delta_forgotten = with_keywords(delta=None)  # leave the second bound out
token_ratio_for_sequence = with_keywords(algorithm="grpo")  # weigh every token with its own ratio
luspo_as_gspo = with_keywords(algorithm="gspo")  # average rows without their length
weights_forgotten = with_keywords(weights=None)  # leave the weights out
token_ratio_everywhere = with_keywords(ratio_level="token")  # r·A for every loss
row_ratio_everywhere = with_keywords(ratio_level="seq_mean")  # the row's mean ratio for every loss
row_mean_everywhere = with_keywords(aggregation="row-mean")  # average rows whatever the algorithm is
own_aggregation = with_keywords(aggregation=None)  # the algorithm's own, whatever is asked for
kl_clamp_forgotten = with_keywords(kl_clamp=None)  # let the KL's estimate grow


@mutation
def rloo_clip_forgotten(original: Fn, **inputs: Any) -> Any:
    """Leave the clip of RLOO's ratio out."""
    if inputs["algorithm"] == "rloo":
        inputs |= {"epsilon_low": None, "epsilon_high": None}
    return original(**inputs)


def _swapped(inputs: dict[str, Any], first: str, second: str) -> dict[str, Any]:
    return {**inputs, first: inputs.get(second), second: inputs.get(first)}


@mutation
def denominators_swapped(original: Fn, **inputs: Any) -> Any:
    """Average over the step for over prompts, and the other way round."""
    other = {"global": "group", "group": "global"}
    asked = str(inputs.get("dapo_denominator"))
    return original(**{**inputs, "dapo_denominator": other.get(asked, asked), "group_size": 4})


@mutation
def dropped_rows_count(original: Fn, mask: Any, name: str, sizes: Any) -> Any:
    """Count the whole width of a row that the mask leaves out, in DAPO's and CISPO's denominators."""
    counted = np.where(mask.any(axis=1, keepdims=True), mask, True) if name == "group_size" else mask
    return original(counted, name, sizes)


@mutation
def row_mask_forgotten(_original: Fn, where: Any, _row_mask: Any) -> Any:
    """Train on the rows that the row mask excludes."""
    return where


@mutation
def excluded_rows_leave_the_batch(original: Fn, **inputs: Any) -> Any:
    """Average over the rows that are kept, as if the batch had no others."""
    loss, gradient = original(**inputs)
    row_mask = inputs.get("row_mask")
    factor = 1.0 if row_mask is None else len(row_mask) / np.sum(row_mask)
    return loss * factor, (gradient * factor).astype(gradient.dtype)


@mutation
def window_forgotten(original: Fn, **inputs: Any) -> Any:
    """Divide by the window's own tokens."""
    if inputs.get("dapo_denominator") == "trl":
        inputs["dapo_denominator"] = "global"
    return original(**inputs)


@mutation
def sides_swapped(original: Fn, **inputs: Any) -> Any:
    """Swap the widths of the clip."""
    return original(**_swapped(inputs, "epsilon_low", "epsilon_high"))


@mutation
def delta_for_gains(original: Fn, ratio: Any, advantage: Any, low: float, high: float, cap: float) -> Any:
    """Take δ for the upper bound of every sign."""
    return original(ratio, advantage, low, cap if np.isfinite(cap) else high, cap)


@mutation
def detached_mean(original: Fn, **inputs: Any) -> Any:
    """Divide the gradient by the row's tokens once more."""
    loss, gradient = original(**inputs)
    if inputs.get("mask") is None:
        return loss, gradient
    return loss, (gradient / np.maximum(inputs["mask"].sum(axis=1, keepdims=True), 1)).astype(gradient.dtype)


@mutation
def row_advantage(original: Fn, **inputs: Any) -> Any:
    """Share the mean of a row's advantages."""
    advantages, mask = inputs["advantages"], inputs.get("mask")
    if mask is not None and advantages.shape == mask.shape:
        inputs["advantages"] = (advantages * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1).astype(
            advantages.dtype
        )
    return original(**inputs)


@mutation
def cispo_bounds_swapped(original: Fn, **inputs: Any) -> Any:
    """Take the other meaning of the cap."""
    other = {"relative": "absolute", "absolute": "relative"}
    return original(**{**inputs, "cispo_bound": other.get(str(inputs.get("cispo_bound")))})


@mutation
def live_ratio(original: Fn, step: Any, cap: float, *rest: Any) -> Any:
    """Differentiate through the truncated ratio: d(r·lp) = r·(lp + 1) where it is not capped."""
    value, slope = original(step, cap, *rest)
    return value, np.where(np.exp(step.lp - step.old) <= cap, slope * (1.0 + step.lp), slope)


@mutation
def clipped_away(original: Fn, step: Any, cap: float, *rest: Any) -> Any:
    """Drop what the cap truncates."""
    value, slope = original(step, cap, *rest)
    kept = np.exp(step.lp - step.old) <= cap
    return np.where(kept, value, 0.0), np.where(kept, slope, 0.0)


@mutation
def power_and_decay_swapped(original: Fn, high: Any, low: Any, power: Any, rate: Any) -> Any:
    """Exchange k and λ."""
    return original(high, low, rate, power)


@mutation
def temperatures_swapped(original: Fn, **inputs: Any) -> Any:
    """Swap SAPO's temperatures."""
    return original(**_swapped(inputs, "sapo_temperature_positive", "sapo_temperature_negative"))


@mutation
def unnormalised_gate(original: Fn, ratio: Any, excess: Any, temperature: Any) -> Any:
    """Leave out 4/τ."""
    value, slope = original(ratio, excess, temperature)
    return value * temperature / 4.0, slope * temperature / 4.0


@mutation
def gate_of_log_ratio(original: Fn, ratio: Any, excess: Any, temperature: Any) -> Any:
    """Open the gate with log r."""
    return original(ratio, np.log1p(excess), temperature)


@mutation
def linear_clip(original: Fn, moved: Any, advantage: Any, low: Any, high: Any) -> Any:
    """Clip the ratio at 1 ± ε."""
    return original(moved, advantage, -np.log1p(-low), np.log1p(high))


@mutation
def both_sides(_original: Fn, moved: Any, advantage: Any, low: float, high: float) -> Any:
    """Clip both sides whatever the sign."""
    del advantage
    q = np.clip(moved, -low, high)
    return q, q == moved


@mutation
def mean_kl(original: Fn, step: Any, *rest: Any) -> Any:
    """Average a row's KL over its tokens."""
    return tuple(part / np.maximum(step.tokens, 1) for part in original(step, *rest))


@mutation
def estimators_swapped(original: Fn, d: Any, lost: Any, estimator: Any) -> Any:
    """Swap k1 and k2."""
    return original(d, lost, {"k1": "k2", "k2": "k1"}.get(estimator, estimator))


@mutation
def kl_levels_swapped(original: Fn, step: Any, reference: Any, estimator: Any, kl_ratio: str, *rest: Any) -> Any:
    """Take the ratio of the other level."""
    other = {"token": "sequence", "sequence": "token"}
    return original(step, reference, estimator, other.get(kl_ratio, kl_ratio), *rest)


@mutation
def kl_ratio_constant(original: Fn, step: Any, reference: Any, estimator: Any, kl_ratio: str, *rest: Any) -> Any:
    """Hold the ratio constant that multiplies the KL."""
    value, slope = original(step, reference, estimator, kl_ratio, *rest)
    if kl_ratio != "token":
        return value, slope
    return value, np.exp(step.lp - step.old) * original(step, reference, estimator, "none", *rest)[1]


@mutation
def lowered_denominator(original: Fn, **inputs: Any) -> Any:
    """Count only what has a weight."""
    weights, mask = inputs.get("weights"), inputs.get("mask")
    if weights is not None and mask is not None:
        inputs["mask"] = mask & ((weights if weights.ndim == 2 else weights[:, None]) != 0.0)
    return original(**inputs)


@mutation
def weights_on_kl(original: Fn, **inputs: Any) -> Any:
    """Weigh surrogate and KL alike."""
    weights, beta = inputs.get("weights"), inputs.get("beta")
    if weights is None or not beta:
        return original(**inputs)
    alone = original(**{**inputs, "beta": 0.0})
    bare = {**inputs, "weights": None}
    kl = [a - b for a, b in zip(original(**bare), original(**{**bare, "beta": 0.0}), strict=True)]
    spread = weights if weights.ndim == 2 else weights[:, None]
    return alone[0] + kl[0] * float(np.mean(weights)), alone[1] + (kl[1] * spread).astype(alone[1].dtype)


@mutation
def without_last_column(original: Fn, **inputs: Any) -> Any:
    """Leave out what stands in the last column."""
    mask = np.ones(inputs["policy"].shape, bool) if inputs.get("mask") is None else inputs["mask"].copy()
    mask[..., -1] = False
    return original(**{**inputs, "mask": mask})


@mutation
def without_last_token(original: Fn, **inputs: Any) -> Any:
    """End every row one token early."""
    if inputs.get("mask") is not None:
        mask = inputs["mask"]
        later = np.zeros_like(mask)
        later[:, :-1] = np.cumsum(mask[:, :0:-1], axis=1)[:, ::-1] > 0
        inputs["mask"] = mask & later
    return original(**inputs)


@mutation
def float32_sum(_original: Fn, values: Any) -> Any:
    """Add one by one in float32."""
    return float(np.add.accumulate(values.reshape(-1).astype(np.float32), dtype=np.float32)[-1])


@mutation
def negated(original: Fn, **inputs: Any) -> Any:
    """Turn the sign of the loss and of its gradient."""
    loss, gradient = original(**inputs)
    return -loss, -gradient


@mutation
def negated_term(original: Fn, *inputs: Any) -> Any:
    """Turn the sign of a term and of its slope."""
    value, slope = original(*inputs)
    return -value, -slope


@mutation
def floor_at_epsilon(original: Fn, ratio: Any, advantage: Any, low: Any, high: Any, cap: Any) -> Any:
    """Hold the ratio above ε instead of 1 − ε."""
    return original(ratio, advantage, 1.0 - low, high, cap)


@mutation
def gain_times_infinity(_original: Fn, ratio: Any, advantage: Any) -> Any:
    """Multiply the ratio by the advantage, whatever they are."""
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
    """Divide by nothing where there is neither a mask nor lengths."""
    loss, gradient = original(**inputs)
    tokens = inputs["policy"].size if inputs.get("mask") is None and inputs.get("lengths") is None else 1
    return loss * tokens, gradient * tokens
