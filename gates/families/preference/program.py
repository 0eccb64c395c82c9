"""The forward definitions of preference learning, written once over an arithmetic.

The log-ratios of a row are reduced to one number; a loss is a function of the numbers of the chosen and the rejected row,
perhaps plus a likelihood. Its gradient is derived from it; limits include gradients written by hand.
Source: docs/definitions.md, "Preference losses", as TRL's DPOTrainer, CPOTrainer, ORPOTrainer and KTOTrainer write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gates.arithmetic import bounded
from gates.arithmetic.forms import accurate, merged
from gates.arithmetic.functions import Value, absolute, exp, log, logsigmoid, maximum, sigmoid, where
from gates.arithmetic.number import Floats, Number, gradient, number, widest
from gates.families.counts import Counted
from gates.families.preference import designed, edits
from gates.families.preference.sides import Sides, either, likelihood, rounded_constant
from gates.families.program import Choices, Data, Edit, Inputs, Program, Sample
from gates.families.rows import tokens

LOSSES: Mapping[str, dict[str, Any]] = {  # the choices of each loss that differ from those of `asked`
    "dpo": {},
    "hinge": {"form": "hinge"},
    "ipo": {"form": "ipo"},
    "dpop": {},
    "simpo": {"row": "mean"},
    "cpo": {"nll": "chosen tokens"},
    "orpo": {"row": "mean", "number": "odds", "place": "outside", "smoothing": None, "nll": "row means"},
}


def asked(call: Inputs) -> Choices:
    """Return the choices that a call of `preference_loss` asks for.

    Raises:
        KeyError: the loss is unknown.
    """
    name = call["loss"]
    choices: dict[str, Any] = {
        "mask": "given",
        "row": "mean" if call.get("lengths") == "mean" else "sum",
        "reference": "none" if call.get("reference") is None else "given",
        "sides": "in turn",
        "gradient": "both",
        "number": "log-ratio",
        "quantity": "log-probs",
        "form": "logistic",
        "beta": call["beta"],
        "place": "inside",
        "smoothing": call.get("label_smoothing") or 0.0,
        "smoothed": "conservative",
        "target": "1/(2β)",
        "penalty": call.get("penalty"),
        "penalised": "chosen",
        "margin": call.get("margin"),
        "nll": "none",
        "count_eps": 0.0,
        "nll_eps": 0.0,
        "alpha": 1.0 if call.get("nll") is None else call["nll"],
        "pairs": "mean",
        "sign": 1.0,
        "name": name,
        "written": "in any form",
        "rest": "log1p",
        **LOSSES[name],
    }
    return choices | ({"nll": "attended"} if call.get("attention_mask") is not None else {})


def forms(chosen: Choices) -> Iterator[Choices]:
    """Yield the usual algebraic forms of a loss with these choices."""
    if chosen["form"] != "logistic":
        yield {"written": "once"}
        return
    yield from ({"written": name} for name in LOG_SIGMOIDS)
    if chosen["number"] == "odds":  # whose gradients round differently
        yield {"written": "log-sigmoid", "rest": "expm1"}
        yield {"written": "log of sigmoid", "rest": "log"}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss."""
    sides = Sides(data, chosen, variable)
    pairs = loss_of_pairs(sides)
    own = chosen["nll"] == "row means" and chosen["written"] in LOG_SIGMOIDS  # added to each pair
    loss = (pairs - sides.rows[0::2] if own else pairs).mean()
    share = {"mean": 1.0, "sum": float(pairs.shape[0]), "rows": 0.5}[chosen["pairs"]] * chosen["sign"]
    loss = loss if share == 1.0 else loss * share
    if chosen["nll"] == "none" or own:
        return {"loss": loss}
    return {"loss": loss + likelihood(sides, chosen["nll"]) * sides.scalar("alpha")}


def loss_of_pairs(sides: Sides) -> Value:
    """Return the loss of each pair, (P,)."""
    c, r = sides.split(sides.rows)
    loss = FORMS[sides.chosen["form"]](sides, c, r)
    if sides.chosen["penalised"] == "outside":
        loss = loss + sides.scalar("penalty") * maximum(0.0, -c)
    return loss * sides.scalar("beta") if sides.chosen["place"] in {"outside", "both"} else loss


def apart(sides: Sides, c: Value, r: Value) -> Value:
    """Return the difference of a pair's numbers: log-ratios, or ORPO's log-odds a − log(1 − e^a)."""
    choice = sides.chosen["number"]
    if choice == "log-ratio":
        return c - r
    if choice == "probability":
        return exp(c) - exp(r)
    if choice == "odds, sum":
        return (c + log(1.0 - exp(c))) - (r + log(1.0 - exp(r)))
    if not isinstance(c, Number):
        return (c - log(1.0 - exp(c))) - (r - log(1.0 - exp(r)))
    odds = {name: (c - rest(c)) - (r - rest(r)) for name, rest in RESTS.items()}
    first = merged(*odds.values())
    return first if sides.chosen["rest"] == "log1p" else merged(odds[sides.chosen["rest"]], first)


RESTS: Mapping[str, Callable[[Number], Number]] = {  # forms of log(1 − e^a)
    "log1p": lambda a: bounded.log1p(-bounded.exp(a)),
    "expm1": lambda a: bounded.log(-bounded.expm1(a)),
    "log": lambda a: bounded.log(1.0 - bounded.exp(a)),
}


def margin(sides: Sides, c: Value, r: Value) -> Value:
    """Return the argument of the sigmoid: β times the difference, less the margin."""
    return either(*_margins(sides, c, r))


def _margins(sides: Sides, c: Value, r: Value) -> list[Value]:
    """Return the forms of the margin, first with β outside the difference, then inside."""
    chosen, beta, h = sides.chosen, sides.scalar("beta"), apart(sides, c, r)
    behind = PENALISED[chosen["penalised"]](sides, c, r) if chosen["penalty"] is not None else None
    less = None if behind is None else sides.scalar("penalty") * behind
    if chosen["place"] in {"inside", "both"}:
        margins = [beta * (h if less is None else h - less)]
        if behind is not None:
            margins.append(beta * h - beta * sides.scalar("penalty") * behind)
        elif chosen["number"] == "log-ratio" and chosen["margin"] is None:
            margins.append(beta * c - beta * r)
        elif chosen["margin"] is not None:
            return [margins[0] - sides.scalar("margin"), beta * (h - sides.scalar("margin") / beta)]
    elif chosen["place"] in {"chosen", "rejected"}:
        margins = [beta * c - r if chosen["place"] == "chosen" else c - beta * r]
    else:
        margins = [h if less is None else h - less]
        margins = [margins[0] / beta] if chosen["place"] == "divides" else margins
    if chosen["penalised"] == "without β":
        margins = [x - sides.scalar("penalty") * maximum(0.0, -c) for x in margins]
    return margins if chosen["margin"] is None else [x - sides.scalar("margin") for x in margins]


PENALISED: Mapping[str, Callable[[Sides, Value, Value], Value | None]] = {  # DPOP's penalty of each pair, without λ
    "chosen": lambda sides, c, r: maximum(0.0, -c),  # noqa: ARG005
    "chosen gains": lambda sides, c, r: maximum(0.0, c),  # noqa: ARG005
    "rejected": lambda sides, c, r: maximum(0.0, -r),  # noqa: ARG005
    "rejected gains": lambda sides, c, r: maximum(0.0, r),  # noqa: ARG005
    "unbounded": lambda sides, c, r: -c,  # noqa: ARG005
    "added": lambda sides, c, r: -maximum(0.0, -c),  # noqa: ARG005
    "by tokens": lambda sides, c, r: sides.split(sides.shortfalls())[0],  # noqa: ARG005
    "both": lambda sides, c, r: maximum(0.0, -c) + maximum(0.0, -r),  # noqa: ARG005
    "of the pair": lambda sides, c, r: maximum(0.0, r - c),  # noqa: ARG005
    "averaged": lambda sides, c, r: maximum(0.0, -c) / tokens(sides.counts)[0::2, 0],  # noqa: ARG005
    "without β": lambda sides, c, r: None,  # noqa: ARG005
    "outside": lambda sides, c, r: None,  # noqa: ARG005
}
LOG_SIGMOIDS: Mapping[str, Callable[[Number], Number]] = {  # forms of log σ, whose gradients round differently
    "log-sigmoid": bounded.logsigmoid,
    "log of sigmoid": lambda z: bounded.log(bounded.sigmoid(z)),
    "log1p": lambda z: -bounded.log1p(bounded.exp(-z)),
}


def minus_log_sigmoid(z: Value, written: str = "in any form") -> Value:
    """Return −log σ(z); its slope −σ(−z) may also be written σ(z) − 1, which loses digits."""
    if not isinstance(z, Number):
        return -logsigmoid(z)
    if written in LOG_SIGMOIDS:
        return -LOG_SIGMOIDS[written](z)
    value = -bounded.logsigmoid(z)
    if np.any(z.value > 0.0):
        value = merged(value, -log(sigmoid(z)))

    def slope(g: Number) -> Number:
        return g * -merged(bounded.sigmoid(-z), 1.0 - bounded.sigmoid(z))

    return Number(value.value, value.dtype, value.error, value.void, [(z, slope)])


def _logistic(sides: Sides, c: Value, r: Value) -> Value:
    z, choice, written = margin(sides, c, r), sides.chosen["smoothed"], sides.chosen["written"]
    if sides.chosen["smoothing"] is None or (not sides.chosen["smoothing"] and written not in LOG_SIGMOIDS):
        return minus_log_sigmoid(z, written)
    s = sides.scalar("smoothing")
    if choice in MOVED:
        return minus_log_sigmoid(MOVED[choice](z, s), written)
    first, second = WEIGHTS.get(choice, WEIGHTS["conservative"])(s)
    return minus_log_sigmoid(z, written) * first + minus_log_sigmoid(-z, written) * second


MOVED: Mapping[str, Callable[[Value, Value], Value]] = {  # the argument of the one sigmoid
    "of the margin": lambda z, s: z * (1.0 - 2.0 * s),
    "of the labels": lambda z, s: z - s,
}
WEIGHTS: Mapping[str, Callable[[Value], tuple[Value, Value]]] = {  # of −log σ(z) and −log σ(−z)
    "conservative": lambda s: (1.0 - s, s),
    "robust": lambda s: ((1.0 - s) / (1.0 - 2.0 * s), -s / (1.0 - 2.0 * s)),
    "first term": lambda s: (1.0 - s, 0.0),
    "second term": lambda s: (0.0, s),
    "subtracted": lambda s: (1.0 - s, -s),
    "first whole": lambda s: (1.0, s),
    "second whole": lambda s: (1.0 - s, 1.0),
    "both whole": lambda s: (1.0, 1.0),  # noqa: ARG005
    "both halves": lambda s: (0.5, 0.5),  # noqa: ARG005
    "divided": lambda s: ((1.0 - s) / (1.0 - 2.0 * s), s / (1.0 - 2.0 * s)),
    "first doubled": lambda s: (1.0 - 2.0 * s, s),
    "robust whole": lambda s: (1.0 / (1.0 - 2.0 * s), -s / (1.0 - 2.0 * s)),
}


def _square(sides: Sides, c: Value, r: Value) -> Value:
    apart = c - r - target(sides)
    return apart * apart


def target(sides: Sides) -> Value:
    """Return IPO's target of the margin."""
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
    "−1/(2β)": lambda beta: -1.0 / (2.0 * beta),
    "1/(4β)": lambda beta: 1.0 / (4.0 * beta),
    "1/(2β²)": lambda beta: 1.0 / (2.0 * beta * beta),
}


def _hinge(sides: Sides, c: Value, r: Value) -> Value:
    return maximum(0.0, 1.0 - _margins(sides, c, r)[0])


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
    "wide hinge": lambda sides, c, r: maximum(0.0, sides.scalar("beta") - _margins(sides, c, r)[0]),
    "square": _of_margin(lambda z: (z - 1.0) * (z - 1.0)),
    "log σ by half": _of_margin(lambda z: (minus_log_sigmoid(z) + minus_log_sigmoid(-z)) * 0.5),
    "apart": lambda sides, c, r: (
        minus_log_sigmoid(sides.scalar("beta") * c) + minus_log_sigmoid(-(sides.scalar("beta") * r))
    ),
    "inverted": _of_margin(lambda z: minus_log_sigmoid(-z)),
    "minus σ(−z)": _of_margin(lambda z: sigmoid(-z)),
    "square of σ": _of_margin(lambda z: sigmoid(-z) * sigmoid(-z)),
    "ipo halved": lambda sides, c, r: _square(sides, c, r) * 0.5,
    "ipo of the margin": _of_margin(lambda z: (z - 0.5) * (z - 0.5)),
    "absolute": lambda sides, c, r: absolute(c - r - target(sides)),
    "sppo": _both_squares,
    "nca": _noise_contrastive,
    "apo_zero": lambda sides, c, r: 1.0 - sigmoid(sides.scalar("beta") * c) + sigmoid(sides.scalar("beta") * r),
    "apo_down": lambda sides, c, r: sigmoid(sides.scalar("beta") * c) + 1.0 - sigmoid(sides.scalar("beta") * (c - r)),
}


def fitted(chosen: Choices, samples: Sequence[Sample]) -> Iterator[Edit]:
    """Yield the edits that add a constant to the counts of tokens, by which rows and likelihoods are averaged."""
    names: dict[str, tuple[str, ...]] = {"the count of tokens": ("count_eps",)}
    if chosen["nll"] != "none":
        names = {
            "every count of tokens": ("count_eps", "nll_eps"),
            "the count of tokens of a row": ("count_eps",),
            "the count of tokens of the likelihood": ("nll_eps",),
        }
    yield from Counted(compute, edits.edits, "policy", names).fitted(chosen, samples)


PAIRS = Program(
    op="preference_loss",
    asked=asked,
    compute=compute,
    edits=edits.edits,
    inputs=designed.designed,
    outputs=("loss", "gradient"),
    variable="policy",
    places=designed.places,
    fitted=fitted,
    presets=edits.presets,
    examples=designed.examples,
)
PROGRAMS = (PAIRS,)


def preference_loss(**call: Any) -> dict[str, Floats]:
    """Return the textbook limits of `loss` and `gradient`, over gradients by autograd and by hand."""
    data, chosen = Data(call, bounded=True), asked(call)
    leaf = number(np.asarray(call["policy"]))
    losses = [compute(data, {**chosen, **form}, leaf)["loss"] for form in forms(chosen)]
    gradients = [gradient(loss, leaf)[0] for loss in losses]
    if chosen["form"] == "logistic":
        gradients += _by_hand(Sides(data, chosen, leaf))
    return widest_of(losses, gradients)


def widest_of(losses: Iterable[Number], gradients: Iterable[Number]) -> dict[str, Floats]:
    """Return the limits of a loss and its gradient, each the widest over its accurate forms."""
    return {"loss": widest(map(accurate, losses)), "gradient": widest(map(accurate, gradients))}


def _by_hand(sides: Sides) -> Iterator[Number]:
    """Yield the gradient by the log-probs, −((1 − s) σ(−z) − s σ(z)) / P dz, with σ(−z) or 1 − σ(z)."""
    chosen, rows = sides.chosen, sides.rows
    z = margin(sides, *sides.split(rows))
    s = rounded_constant(sides.data, chosen["smoothing"] or 0.0)
    moved, pair = gradient(z, rows)[0], np.arange(rows.shape[0]) // 2
    for closed in (bounded.sigmoid(-z), 1.0 - bounded.sigmoid(z)):
        slope = -(closed * (1.0 - s) - (1.0 - closed) * s) / float(z.shape[0])
        slope = sides.scalar("beta") * slope if chosen["place"] == "outside" else slope
        by_row = slope[pair] * moved
        if chosen["nll"] == "row means":
            by_row = by_row - np.tile([1.0, 0.0], z.shape[0]) / float(z.shape[0])
        spread = sides.spread(by_row)
        if chosen["nll"] in {"chosen tokens", "attended"}:
            cost = likelihood(sides, chosen["nll"]) * sides.scalar("alpha")
            spread = spread + gradient(cost, sides.lp)[0]
        yield spread


def winner_loss(**call: Any) -> dict[str, Floats]:
    """Return the textbook limits of `loss` and `gradient`; one part bounds the sums over micro-batches."""
    groups = np.asarray(call["scores"], np.float64).reshape(-1, call["group_size"])
    rows = np.nanargmax(groups, axis=1) + groups.shape[1] * np.arange(len(groups))
    counts = np.asarray(call["mask"], bool) & np.isin(np.arange(groups.size), rows)[:, None]
    lp = where(counts, number(np.asarray(call["policy"])), 0.0)
    mean = -(lp.sum(1, keepdims=True) / tokens(counts)).reshape(-1).sum() / float(len(rows))
    return {"loss": mean.limit(), "gradient": gradient(mean, lp)[0].limit()}
