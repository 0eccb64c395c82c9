"""The edits of what bounds the ratio in a policy loss: clips, caps, gates and tapers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gates.families.edits import mistakes, numbers
from gates.families.program import Choices, Edit

WIDTHS = (0.1, 0.2, 0.28, 0.3)
DELTAS = (2.0, 3.0, 4.0, 5.0, 10.0)  # usual second bounds of a dual clip
LOWER = (0.2,)  # usual lower widths of a mask
CAPS = (0.2, 0.28, 1.0, 2.0, 3.0, 4.0, 5.0)  # usual constants of a cap


def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of what bounds the ratio."""
    yield from {
        "clip": _of_the_clip,
        "log-clip": _in_nats,
        "cap": _caps,
        "gate": _gates,
        "taper": _tapers,
    }.get(asked["bound"], lambda _: iter(()))(asked)
    if asked["delta"] is not None:
        yield Edit("the second bound δ ignored", {"delta": None})
        if asked["bound"] == "clip":
            yield from _dual(asked)


def _dual(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of the second bound of a dual clip, max(clipped surrogate, δ·A) where A < 0."""
    picks = {
        "floor, any sign": "the dual clip max(·, δ·A) whatever the sign of A, not only where A < 0",
        "floor, A > 0": "the dual clip max(·, δ·A) where A > 0, not where A < 0",
        "ceiling, A < 0": "the dual clip takes the minimum with δ·A where A < 0, not the maximum",
        "floor negated": "the dual clip with −δ·A, the wrong sign",
        "floor alone, A < 0": "δ·A for every token where A < 0, not the maximum with it",
    }
    yield from mistakes("pick", picks)
    delta = asked["delta"]
    yield Edit("the second bound 1 + δ, not δ", {"delta": 1.0 + delta})
    yield Edit("the second bound 1/δ, not δ", {"delta": 1.0 / delta})
    yield from numbers("δ", "delta", DELTAS, asked)


def _widths(asked: Choices) -> Iterator[Edit]:
    low, high = asked["low"], asked["high"]
    if low is None or high is None:
        return
    if low != high:
        yield Edit("ε_low and ε_high swapped", {"low": high, "high": low})
        yield Edit("ε_low on both sides of the clip", {"high": low})
        yield Edit("ε_high on both sides of the clip", {"low": high})
    yield Edit("no lower bound of the clip", {"low": None})
    if asked["bound"] == "clip":
        yield Edit("the lower bound ε_low, not 1 − ε_low", {"low": 1.0 - low})
        yield Edit("the upper bound ε_high, not 1 + ε_high", {"high": high - 1.0})
        yield Edit("bounds ε_low and ε_high, not 1 − ε_low and 1 + ε_high", {"low": 1.0 - low, "high": high - 1.0})
        yield Edit("bounds −ε_low and ε_high, not around 1", {"low": 1.0 + low, "high": high - 1.0})
        yield Edit("the lower bound 1/(1 + ε_high), the inverse of the upper one", {"low": 1.0 - 1.0 / (1.0 + high)})
        if low < 1.0:
            yield Edit("the upper bound 1/(1 − ε_low), the inverse of the lower one", {"high": 1.0 / (1.0 - low) - 1.0})
    yield Edit("no upper bound of the clip", {"high": None})


def _of_the_clip(asked: Choices) -> Iterator[Edit]:
    low, high = asked["low"], asked["high"]
    yield from _widths(asked)
    above = "the clip only where A < 0" if asked["delta"] is None else "δ instead of 1 + ε_high where A > 0"
    picks = {
        "free": "a clip that never acts: r·A",
        "held": "clip(r)·A without the minimum",
        "max": "the maximum of both terms instead of the minimum",
        "min, A > 0 only": "the clip only where A > 0",
        "min, A < 0 only": above,
        "straight through": "a clip that lets the gradient through",
        "max, A < 0 only": "the maximum of both terms where A < 0",
        "max, A > 0 only": "the maximum of both terms where A > 0",
        "of the product": "the clip on r·A, not on r",
    }
    yield from mistakes("pick", picks)
    yield from numbers("ε_low", "low", WIDTHS, asked)
    yield from numbers("ε_high", "high", WIDTHS, asked)
    yield from (
        Edit(f"ε {x:g} on both sides of the clip", {"low": x, "high": x})
        for x in WIDTHS
        if low not in {None, x} and high != x
    )


def _in_nats(asked: Choices) -> Iterator[Edit]:
    yield from _widths(asked)
    low, high = asked["low"], asked["high"]
    if low is not None and high is not None and low < 1.0:
        linear = {"low": -math.log1p(-low), "high": math.log1p(high)}
        yield Edit("bounds 1 ± ε of the ratio, not ±ε of its logarithm", linear)
    yield Edit("both bounds on every log-ratio", {"pick": "both"})
    yield Edit("bounds of the log-ratio by the wrong sign of A", {"pick": "other side"})
    yield Edit("bounds on the row's mean log-ratio, not on each token's", {"pick": "late"})
    yield Edit("no bound on the log-ratio", {"low": None, "high": None})
    yield Edit("the sum of log-ratios, not their mean", {"level": "seq_sum"})
    yield Edit("the mean of ratios, not exp of the mean", {"level": "mean of ratios"})
    yield Edit("the sum of log-ratios over the padded width, not their mean", {"level": "row mean over the width"})
    yield Edit("the ratio of each token, not of the row", {"level": "token"})
    yield Edit(
        "bounds on both sides of every log-ratio, ε_low above and ε_high below",
        {"pick": "both", "low": high, "high": low},
    )


def _caps(asked: Choices) -> Iterator[Edit]:
    other = {"relative": "absolute", "absolute": "relative"}[asked["cap"]]
    bounds = {"relative": "1 + ε_high", "absolute": "ε_high"}
    yield Edit(f"the cap {bounds[other]}", {"cap": other}, convention=True, asked=bounds[asked["cap"]])
    yield from _masks(asked)
    yield Edit("no cap on the ratio", {"cap": "none"})
    yield Edit("a capped ratio that has a gradient", {"pick": "alive"})
    yield Edit("min(r, c)·A without log π", {"pick": "without log-prob"})
    if asked["low"] is None:
        yield Edit("the ratio bounded from below too", {"low": asked["high"]})
    else:
        yield Edit("no lower bound of the ratio", {"low": None})
    yield Edit("tokens beyond the cap left out, not weighed by the cap", {"pick": "dropped"})
    yield Edit("the larger of ratio and cap, not the smaller", {"pick": "larger"})
    yield Edit("the cap only where A > 0", {"pick": "A > 0 only"})
    yield Edit("the cap only where A < 0", {"pick": "A < 0 only"})
    yield Edit("A·log π without the capped weight", {"pick": "no weight"})
    yield Edit("the capped weight times the probability of the token, not its logarithm", {"pick": "probability"})
    yield Edit("the capped weight times the ratio, not log π", {"pick": "times the ratio"})
    yield Edit("a weight of 1 beyond the cap", {"pick": "1 beyond"})
    yield Edit(
        "the capped weight takes PPO's minimum by the sign of A: no gradient beyond the cap where A > 0",
        {"pick": "PPO"},
    )
    yield from numbers("ε_high", "high", CAPS, asked)


def _masks(asked: Choices) -> Iterator[Edit]:
    """Yield the token masks of MiniMax-M1's unified formulation (arXiv 2506.13585, eqs. 6 and 7), as Trinity-RFT has one.

    Where A > 0 a token is left out above the upper bound, where A < 0 below the lower one; the others keep their weight.
    """
    widths = (asked["low"],) if asked["low"] is not None else (None, *dict.fromkeys((_width(asked), *LOWER)))
    for low in widths:
        below = "" if low is None else f", and those where A < 0 and r < {1.0 - low:g}"
        words = f"tokens where A > 0 and the ratio is above the cap left out{below} (the mask M of MiniMax-M1)"
        yield Edit(words, {"pick": "masked", "mask_low": low}, convention=True)
        free = f"{words}, the others with their ratio, not capped: the gradient of PPO's clip"
        yield Edit(free, {"pick": "masked, not capped", "mask_low": low}, convention=True)


def _width(asked: Choices) -> float:
    """Return the width of a mask that is as wide on both sides of 1."""
    high: float = asked["high"] - (1.0 if asked["cap"] == "absolute" else 0.0)
    return high if 0.0 < high < 1.0 else LOWER[0]


def _gates(asked: Choices) -> Iterator[Edit]:
    up, down = asked["tau"]
    if up != down:
        yield Edit("the two temperatures swapped", {"tau": (down, up)})
        yield Edit("the temperature of A > 0 everywhere", {"tau": (up, up)})
        yield Edit("the temperature of A < 0 everywhere", {"tau": (down, down)})
    picks = {
        "log": "the gate of D, not of r − 1",
        "uncentred": "the gate of r, not of r − 1",
        "no factor": "the gate without its factor 4/τ",
        "factor 4": "the factor 4, not 4/τ",
        "factor 2/τ": "the factor 2/τ, not 4/τ",
        "factor 1/τ": "the factor 1/τ, not 4/τ",
        "factor 4τ": "the factor 4τ, not 4/τ",
        "falling": "the gate of 1 − r, the wrong sign",
        "τ divides": "the gate of (r − 1)/τ, not of τ(r − 1)",
        "slope": "the gate's slope 4σ(1 − σ) in the place of the gate",
        "by the ratio": "the temperature by whether the ratio is above 1, not by the sign of A",
        "weight of log π": "the gate as a constant weight of log π",
        "times the ratio": "the gate times the ratio",
        "no τ inside": "the gate of r − 1, not multiplied by τ",
    }
    yield from mistakes("pick", picks)
    yield Edit("temperatures ignored: τ = 1", {"tau": (1.0, 1.0)})


def _tapers(asked: Choices) -> Iterator[Edit]:
    (k_up, k_down), (up, down) = asked["k"], asked["lambda"]
    yield Edit("k and λ of A ≥ 0 and of A < 0 swapped", {"k": (k_down, k_up), "lambda": (down, up)})
    yield Edit("k and λ of A ≥ 0 everywhere", {"k": (k_up, k_up), "lambda": (up, up)})
    yield Edit("k and λ exchanged", {"k": (up, down), "lambda": (k_up, k_down)})
    yield Edit("the weight without its power of r", {"pick": "no power"})
    yield Edit("the weight without its decay exp(−λr)", {"pick": "no decay"})
    yield Edit("k and λ of A < 0 everywhere", {"k": (k_down, k_down), "lambda": (down, down)})
    yield Edit("k of A ≥ 0 and of A < 0 swapped", {"k": (k_down, k_up)})
    yield Edit("λ of A ≥ 0 and of A < 0 swapped", {"lambda": (down, up)})
    yield Edit("the weight without its constant factor exp(λ): not 1 at a ratio of 1", {"pick": "no constant"})
    yield Edit("1 over the weight", {"pick": "inverse"})
    yield Edit("the weight's decay with the wrong sign: exp(−λ(1 − r))", {"pick": "decay inverted"})
    yield Edit("k = 1", {"k": (1.0, 1.0)})
    yield Edit("λ = 1", {"lambda": (1.0, 1.0)})
    yield Edit("the weight of each token's ratio, not of the row's product", {"level": "token"})
    yield Edit("a weight that has a gradient", {"pick": "alive"})
    yield Edit("A·log π without the weight", {"pick": "no weight"})
    yield Edit("the weight times the probability of the token, not its logarithm", {"pick": "probability"})
    yield Edit("the weight times the ratio, not log π", {"pick": "times the ratio"})
    yield Edit("the weight of the row's mean ratio, not of its product", {"level": "seq_mean"})
