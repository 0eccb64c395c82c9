"""The terms of a token in the policy losses: the bounded ratio times the advantage, and the KL."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.arithmetic.functions import Value, absolute, clip, detached, exp, maximum, minimum, plain, sqrt, where
from gates.families.loss.step import Step
from gates.families.rows import total


def surrogate(step: Step) -> Value:
    """Return the term of each token (to be minimised), times its off-policy weight."""
    bound = "none" if step.chosen["level"] == "none" else step.chosen["bound"]
    return weighted(step, BOUNDS[bound](step, step.advantages(), step.log_ratio()))


def weighted(step: Step, term: Value) -> Value:
    """Return a term times the off-policy weights, if there are any."""
    choice = step.chosen["weights"]
    if choice in {"none", "for advantages", "in the ratio"}:
        return term
    weights = step.lifted("weights")
    if choice in OF_WEIGHTS:
        return term * OF_WEIGHTS[choice](weights, step)
    return term * weights


OF_WEIGHTS: Mapping[str, Callable[[Value, Step], Value]] = {
    "next row": lambda w, step: w[np.roll(np.arange(w.shape[0]), -1)],  # noqa: ARG005
    "mean 1": lambda w, step: w / (where(step.counts, w, 0.0).sum() / float(max(step.counts.sum(), 1))),
    "mean 1 by row": lambda w, step: w / (total(w, step.counts) / step.tokens),
    "inverse": lambda w, step: 1.0 / w,  # noqa: ARG005
    "squared": lambda w, step: w * w,  # noqa: ARG005
    "root": lambda w, step: sqrt(w),  # noqa: ARG005
    "at most 1": lambda w, step: minimum(w, 1.0),  # noqa: ARG005
    "as mask": lambda w, step: w * 0.0 + (plain(w) > 0.0),  # noqa: ARG005
}


def _unbounded(step: Step, a: Value, log_ratio: Value) -> Value:
    level = step.chosen["level"]
    return -((OF_LOGARITHMS[level](step.lp) if level in OF_LOGARITHMS else step.ratio(level, log_ratio)) * a)


OF_LOGARITHMS: Mapping[str, Callable[[Value], Value]] = {  # levels without a ratio
    "none": lambda lp: lp,
    "probability": exp,
    "weighed logarithm": lambda lp: exp(lp) * lp,
}


def _clipped(step: Step, a: Value, log_ratio: Value) -> Value:
    r = step.ratio(step.chosen["level"], log_ratio)
    low, high, delta = (step.constant(name) for name in ("low", "high", "delta"))
    held = clip(r, None if low is None else 1.0 - low, None if high is None else 1.0 + high)
    pick = step.chosen["pick"]
    if delta is not None and pick in DUAL:
        return -DUAL[pick](a, minimum(r * a, held * a), delta * a)
    bounded = r if delta is None else minimum(r, delta)
    if pick == "of the product":
        return -minimum(
            bounded * a, clip(r * a, None if low is None else 1.0 - low, None if high is None else 1.0 + high)
        )
    return -PICKS[pick](a, r, bounded * a, held)


DUAL: Mapping[str, Callable[[Value, Value, Value], Value]] = {  # functions of A, the clipped surrogate and δ·A
    "floor, any sign": lambda a, term, floor: maximum(term, floor),  # noqa: ARG005
    "floor, A > 0": lambda a, term, floor: where(plain(a) > 0.0, maximum(term, floor), term),
    "ceiling, A < 0": lambda a, term, floor: where(plain(a) < 0.0, minimum(term, floor), term),
    "floor negated": lambda a, term, floor: where(plain(a) < 0.0, maximum(term, -floor), term),
    "floor alone, A < 0": lambda a, term, floor: where(plain(a) < 0.0, floor, term),
}


PICKS: Mapping[str, Callable[[Value, Value, Value, Value], Value]] = {
    "min": lambda a, r, free, held: minimum(free, held * a),  # noqa: ARG005
    "max": lambda a, r, free, held: maximum(free, held * a),  # noqa: ARG005
    "free": lambda a, r, free, held: free,  # noqa: ARG005
    "held": lambda a, r, free, held: held * a,  # noqa: ARG005
    "max, A < 0 only": lambda a, r, free, held: where(plain(a) < 0.0, maximum(free, held * a), minimum(free, held * a)),  # noqa: ARG005
    "max, A > 0 only": lambda a, r, free, held: where(plain(a) > 0.0, maximum(free, held * a), minimum(free, held * a)),  # noqa: ARG005
    "straight through": lambda a, r, free, held: (detached(held - r) + r) * a,  # noqa: ARG005
    "min, A > 0 only": lambda a, r, free, held: where(plain(a) > 0.0, minimum(free, held * a), free),  # noqa: ARG005
    "min, A < 0 only": lambda a, r, free, held: where(plain(a) < 0.0, minimum(free, held * a), free),  # noqa: ARG005
}


def _of_clipped_logarithm(step: Step, a: Value, log_ratio: Value) -> Value:
    low, high = step.constant("low"), step.constant("high")
    return -minimum(exp(log_ratio) * a, exp(clip(log_ratio, None if low is None else -low, high)) * a)


def _capped(step: Step, a: Value, log_ratio: Value) -> Value:
    r, width, low = step.ratio(step.chosen["level"], log_ratio), step.scalar(step.chosen["high"]), step.constant("low")
    bound = {"relative": 1.0 + width, "absolute": width}.get(step.chosen["cap"])
    held = clip(r, None if low is None else 1.0 - low, bound)
    if step.chosen["pick"] == "dropped" and bound is not None:
        held = where(r <= bound, r, 0.0)
    if step.chosen["pick"] == "larger" and bound is not None:
        held = maximum(r, bound)
    if step.chosen["pick"] in {"A > 0 only", "A < 0 only"}:
        held = where((plain(a) > 0.0) == (step.chosen["pick"] == "A > 0 only"), held, r)
    if step.chosen["pick"] in {"masked", "masked, not capped"} and bound is not None:
        held = _in_trust_region(step, a, r, r if step.chosen["pick"] == "masked, not capped" else held, bound)
    if step.chosen["pick"] == "1 beyond" and bound is not None:
        held = where(r <= bound, r, 1.0)
    if step.chosen["pick"] == "PPO" and bound is not None:
        held = where((plain(r) <= plain(bound)) | (plain(a) < 0.0), r, 0.0)
    return -_times_logarithm(step, held, a, r)


def _times_logarithm(step: Step, weight: Value, a: Value, ratio: Value) -> Value:
    """Return a constant weight times A·log π, or what an edit makes of them."""
    pick = step.chosen["pick"]
    if pick in {"alive", "without log-prob"}:
        return weight * a * step.lp if pick == "alive" else weight * a
    if pick == "no weight":
        return a * step.lp
    score = exp(step.lp) if pick == "probability" else ratio if pick == "times the ratio" else step.lp
    return detached(weight) * a * score


def _in_trust_region(step: Step, a: Value, r: Value, held: Value, bound: Value) -> Value:
    """Return a weight, 0 where A > 0 and the ratio is above its bound, or A < 0 and it is below: MiniMax-M1's mask M."""
    above, low = where(r > bound, 0.0, held), step.constant("mask_low")
    return where(plain(a) > 0.0, above, held if low is None else where(r < 1.0 - low, 0.0, held))


def _tapered(step: Step, a: Value, log_ratio: Value) -> Value:
    logarithm = step.logarithm(step.chosen["level"], log_ratio)
    gains = plain(a) >= 0.0
    k, rate = (where(gains, *(step.scalar(x) for x in step.chosen[name])) for name in ("k", "lambda"))
    power = {"no power": logarithm * 0.0, "no decay": rate + k * logarithm}.get(step.chosen["pick"], k * logarithm)
    decay = exp(logarithm) * rate
    exponent = {"no decay": power, "no constant": power - decay, "inverse": decay - rate - power}
    exponent |= {"decay inverted": power - rate + decay}
    weight = exp(exponent.get(step.chosen["pick"], rate + power - decay))
    return -_times_logarithm(step, weight, a, exp(logarithm))


def _gated(step: Step, a: Value, log_ratio: Value) -> Value:
    r, pick = step.ratio(step.chosen["level"], log_ratio), step.chosen["pick"]
    tau = step.temperature(a)
    moved = {"log": log_ratio, "uncentred": r, "falling": 1.0 - r}.get(pick, r - 1.0)
    if pick == "by the ratio":
        tau = where(plain(r) > 1.0, *(step.scalar(x) for x in step.chosen["tau"]))
    if pick == "τ divides":
        return -(step.gate(moved / tau) * (4.0 / tau) * a)
    if pick == "slope":
        opened = step.gate(tau * moved)
        return -(opened * (1.0 - opened) * 4.0 * a)
    if pick == "no τ inside":
        return -(step.gate(moved) * (4.0 / tau) * a)
    if pick in {"weight of log π", "times the ratio"}:
        gate = step.gate(tau * moved) * (4.0 / tau)
        return -((gate * r if pick == "times the ratio" else detached(gate) * step.lp) * a)
    factor = {
        "no factor": 1.0,
        "factor 4": 4.0,
        "factor 2/τ": 2.0 / tau,
        "factor 1/τ": 1.0 / tau,
        "factor 4τ": 4.0 * tau,
    }.get(pick, 4.0 / tau)
    return -(step.gate(tau * moved) * factor * a)


def _geometric(step: Step, a: Value, log_ratio: Value) -> Value:
    low, high, pick = step.constant("low"), step.constant("high"), step.chosen["pick"]
    if pick == "late":
        log_ratio = total(log_ratio, step.counts) / step.tokens * np.ones(step.counts.shape)
    below, above = clip(log_ratio, None, high), clip(log_ratio, None if low is None else -low, None)
    gains = plain(a) > 0.0
    both = clip(below, None if low is None else -low, None)
    q = both if pick == "both" else where(gains, above, below) if pick == "other side" else where(gains, below, above)
    return -(step.ratio(step.chosen["level"], q) * a)


BOUNDS: Mapping[str, Callable[[Step, Value, Value], Value]] = {  # the table's choices, and mistakes
    "none": _unbounded,
    "clip": _clipped,
    "log-clip": _geometric,
    "cap": _capped,
    "gate": _gated,
    "taper": _tapered,
    "clipped logarithm": _of_clipped_logarithm,
}


def penalty(step: Step) -> Value:
    """Return β times the mean KL."""
    estimate = kl_term(step)
    if step.chosen["kl"] != "padding too":
        estimate = where(step.counts, estimate, 0.0)
    return step.mean(estimate, kl_mean(step), of_kl=True) * step.scalar(step.chosen["beta"])


def kl_mean(step: Step) -> str | None:
    """Return how the KL is averaged; None: as the policy term."""
    kind: str = step.chosen["kl_mean"]
    return None if kind == "same" else kind


def kl_term(step: Step) -> Value:
    """Return the KL estimate of each token times its ratio."""
    chosen, estimate = step.chosen, _estimate(step)
    if chosen["kl_ratio"] != "none":
        r = step.unweighed_ratio("seq_mean" if chosen["kl_ratio"] == "sequence" else "token", step.drift)
        weight, of_constant = KL_RATIOS.get(chosen["kl_ratio"], ("alive", False))
        estimate = (detached(r) if weight == "constant" else r) * (detached(estimate) if of_constant else estimate)
    if chosen["kl"] == "times advantages":
        estimate = estimate * step.advantages()
    if chosen["kl"] == "weighed by the policy":
        estimate = estimate * exp(step.lp)
    return weighted(step, estimate) if chosen["weights"] == "on the KL too" else estimate


KL_RATIOS = {  # whether the ratio of a KL has a gradient, and whether the estimate is a constant
    "token, no slope": ("constant", False),
    "token, of a constant": ("alive", True),
}


def _estimate(step: Step) -> Value:
    kind, limit, clamped = (step.chosen[name] for name in ("kl", "kl_clamp", "kl clamped"))
    value, slope = SLOPES.get(step.chosen["estimator"], (step.chosen["estimator"], ""))
    d = _log_ratio(step, kind)
    if clamped == "log-ratio" and limit is not None:
        return ESTIMATES[value](clip(d, -float(limit), float(limit)))
    estimate = ESTIMATES[value](d)
    if kind == "at least 0":
        estimate = maximum(estimate, 0.0)
    if limit is not None:
        estimate = clip(estimate, None if clamped == "above" else -float(limit), float(limit))
    return estimate if not slope else _sloped(estimate, slope, d, step.lp)


FACTORS = {"half of d": 0.5, "twice d": 2.0}


def _log_ratio(step: Step, kind: str) -> Value:
    """Return d of each token, reference − policy."""
    reference = step.logprobs("old" if kind == "old" else "reference")
    lp = detached(step.lp) if kind == "detached" else step.logprobs("old") if kind == "of old" else step.lp
    if kind in {"next token", "previous token"}:
        reference = step.following(reference) if kind == "next token" else step.preceding(reference)
    if kind == "next row":
        reference = reference[np.roll(np.arange(step.counts.shape[0]), -1)]
    if kind == "of probabilities":
        return exp(reference) - exp(lp)
    if kind == "without reference":
        return -lp
    d = lp - reference if kind == "inverted" else reference - lp
    d = d * FACTORS[kind] if kind in FACTORS else d
    nats: float | None = step.chosen["d_clamp"]
    return d if nats is None else clip(d, -nats, nats)


def _sloped(estimate: Value, slope: str, d: Value, lp: Value) -> Value:
    """Return an estimate with the gradient of another one, or as a constant that weighs log π or its gradient."""
    if slope == "log π":
        return detached(estimate) * lp
    if slope == "the gradient of log π":
        return detached(estimate) * (lp - detached(lp) + 1.0)
    return detached(estimate - ESTIMATES[slope](d)) + ESTIMATES[slope](d)


ESTIMATES: Mapping[str, Callable[[Value], Value]] = {
    "k1": lambda d: -d,
    "k2": lambda d: d * d * 0.5,
    "k2 doubled": lambda d: d * d,
    "k3": lambda d: exp(d) - d - 1.0,
    "k3 without −1": lambda d: exp(d) - d,
    "k3 with +d": lambda d: exp(d) + d - 1.0,
    "k3 without d": lambda d: exp(d) - 1.0,
    "k3 of −d in exp": lambda d: exp(-d) - d - 1.0,
    "absolute": absolute,
    "full ratio": lambda d: exp(-d) * -d,
}
SLOPES: Mapping[
    str, tuple[str, str]
] = {  # estimates whose gradient is not that of their value, and where it comes from
    **{
        f"{value} with {slope}'s gradient": (value, slope)
        for slope in ("k2", "k3", "k1")
        for value in ("k3", "k1", "k2", "absolute")
        if value != slope and (value != "absolute" or slope == "k2")
    },
    **{f"{value} weighing log π": (value, "log π") for value in ("k1", "k2", "k3")},
    **{f"{value} weighing its gradient": (value, "the gradient of log π") for value in ("k2", "k3")},
}
