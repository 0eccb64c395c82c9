"""The loss of a pair in the forward definition of the preference losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, absolute, exp, log, logsigmoid, maximum, sigmoid
from gates.diagnosis.programs.preference_rows import Sides, either
from reference.textbook import number as bounded
from reference.textbook.forms import merged
from reference.textbook.number import Number


def loss_of_pairs(sides: Sides) -> Value:
    """Return the loss of each pair, (P,)."""
    c, r = sides.split(number_of(sides, sides.rows()))
    loss = FORMS[sides.chosen["form"]](sides, c, r)
    if sides.chosen["penalised"] == "outside":
        loss = loss + sides.scalar("penalty") * maximum(0.0, -c)
    return loss * sides.scalar("beta") if sides.chosen["place"] in {"outside", "both"} else loss


def number_of(sides: Sides, a: Value) -> Value:
    """Return what is compared of each row: its number, or the log-odds of ORPO."""
    choice = sides.chosen["number"]
    if choice == "probability":
        return exp(a)
    if choice in {"odds", "odds, sum"}:
        rest = log(1.0 - exp(a))
        return a - rest if choice == "odds" else a + rest
    return a


def margin(sides: Sides, c: Value, r: Value) -> Value:
    """Return the argument of the sigmoid: β times what is apart, less the margin."""
    chosen, beta = sides.chosen, sides.scalar("beta")
    apart = c - r - penalty(sides, c, r)
    place = chosen["place"]
    if place in {"inside", "both"}:
        z = either(beta * apart, beta * c - beta * (r + penalty(sides, c, r)))
    elif place == "divides":
        z = apart / beta
    elif place in {"chosen", "rejected"}:
        z = beta * c - r if place == "chosen" else c - beta * r
    else:
        z = apart
    if chosen["penalised"] == "without β":
        z = z - sides.scalar("penalty") * maximum(0.0, -c)
    return z - sides.scalar("margin") if chosen["margin"] else z


def penalty(sides: Sides, c: Value, r: Value) -> Value:
    """Return DPOP's penalty of each pair."""
    choice = sides.chosen["penalised"]
    if not sides.chosen["penalty"] or choice in {"without β", "outside"}:
        return c * 0.0
    if choice == "by tokens":
        return sides.scalar("penalty") * sides.split(sides.shortfalls())[0]
    behind = {
        "chosen": lambda: maximum(0.0, -c),
        "chosen gains": lambda: maximum(0.0, c),
        "rejected": lambda: maximum(0.0, -r),
        "rejected gains": lambda: maximum(0.0, r),
        "unbounded": lambda: -c,
        "added": lambda: -maximum(0.0, -c),
    }[choice]()
    return sides.scalar("penalty") * behind


def minus_log_sigmoid(z: Value) -> Value:
    """Return −log σ(z); its slope −σ(−z) may be written 1 − σ(z) too, which loses digits."""
    if not isinstance(z, Number):
        return -logsigmoid(z)
    value = -bounded.logsigmoid(z)
    if np.any(z.value > 0.0):
        value = merged(value, -log(sigmoid(z)))

    def slope(g: Number) -> Number:
        return g * -merged(bounded.sigmoid(-z), 1.0 - bounded.sigmoid(z))

    return Number(value.value, value.dtype, value.error, value.void, [(z, slope)])


def _logistic(sides: Sides, c: Value, r: Value) -> Value:
    z, s, choice = margin(sides, c, r), sides.scalar("smoothing"), sides.chosen["smoothed"]
    if not sides.chosen["smoothing"]:
        return minus_log_sigmoid(z)
    first, second = minus_log_sigmoid(z) * (1.0 - s), minus_log_sigmoid(-z) * s
    if choice == "robust":
        return (first - second) / (1.0 - 2.0 * s)
    return {"first term": first, "subtracted": first - second}.get(choice, first + second)


def _square(sides: Sides, c: Value, r: Value) -> Value:
    apart = c - r - target(sides)
    return apart * apart


def target(sides: Sides) -> Value:
    """Return what IPO draws the margin to."""
    beta = sides.scalar("beta")
    return TARGETS[sides.chosen["target"]](beta)


TARGETS: Mapping[str, Callable[[Value], Value]] = {
    "1/(2β)": lambda beta: 1.0 / (2.0 * beta),
    "1/β": lambda beta: 1.0 / beta,
    "β/2": lambda beta: beta * 0.5,
    "β": lambda beta: beta,
    "1/2": lambda beta: beta * 0.0 + 0.5,
    "1": lambda beta: beta * 0.0 + 1.0,
    "0": lambda beta: beta * 0.0,
    "2/β": lambda beta: 2.0 / beta,
}


def _hinge(sides: Sides, c: Value, r: Value) -> Value:
    return maximum(0.0, 1.0 - margin(sides, c, r))


def _both_squares(sides: Sides, c: Value, r: Value) -> Value:
    up, down = c - target(sides), r + target(sides)
    return up * up + down * down


def _noise_contrastive(sides: Sides, c: Value, r: Value) -> Value:
    up, down = sides.scalar("beta") * c, sides.scalar("beta") * r
    return minus_log_sigmoid(up) + (minus_log_sigmoid(-up) + minus_log_sigmoid(-down)) * 0.5


def _of_margin(function: Callable[[Value], Value]) -> Callable[[Sides, Value, Value], Value]:
    return lambda sides, c, r: function(margin(sides, c, r))


FORMS: Mapping[str, Callable[[Sides, Value, Value], Value]] = {
    "logistic": _logistic,
    "hinge": _hinge,
    "ipo": _square,
    "sigmoid": _of_margin(lambda z: -sigmoid(z)),
    "exponential": _of_margin(lambda z: exp(-z)),
    "squared hinge": lambda sides, c, r: _hinge(sides, c, r) * _hinge(sides, c, r),
    "negative margin": _of_margin(lambda z: -z),
    "perceptron": _of_margin(lambda z: maximum(0.0, -z)),
    "ipo halved": lambda sides, c, r: _square(sides, c, r) * 0.5,
    "ipo of the margin": _of_margin(lambda z: (z - 0.5) * (z - 0.5)),
    "absolute": lambda sides, c, r: absolute(c - r - target(sides)),
    "sppo": _both_squares,
    "nca": _noise_contrastive,
    "apo_zero": lambda sides, c, r: 1.0 - sigmoid(sides.scalar("beta") * c) + sigmoid(sides.scalar("beta") * r),
    "apo_down": lambda sides, c, r: sigmoid(sides.scalar("beta") * c) + 1.0 - sigmoid(sides.scalar("beta") * (c - r)),
}
