"""The gradient by the logits of log-probs of ids and their entropy: of the forward formula, or in closed form.

Source: docs/definitions.md, "Log-probabilities".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, exp, where
from gates.arithmetic.number import Floats, gradient
from gates.families.limits import limits
from gates.families.logprobs import edits, program
from gates.families.logprobs import inputs as generators
from gates.families.logprobs.program import ENTROPY_FORMS, FORMS, Call, forms, log_softmax, outputs
from gates.families.program import Choices, Data, Inputs, Program
from gates.model import Array

FORMULAS = ("by the softmax", "by the exponential of log p")


def asked(inputs: Inputs) -> Choices:
    """Return the choices that a call of `selective_log_softmax_backward` asks for."""
    with_entropy = inputs.get("grad_entropy") is not None
    return {
        **program.asked(inputs),
        "with_entropy": with_entropy,
        "upstream": "given",
        "derived": "by autograd",
        "chain": "over τ",
        "at": "every id",
        "of_entropy": 1.0,
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  its variable is in the call
    """Return ∂L/∂logits of L = Σ g·lp + Σ g_H·H; nothing without bounds, because only `Number` is differentiated."""
    if not data.bounded:
        return {}
    call = Call(data, chosen)
    upstream = np.asarray(data["grad_logprobs"]).astype(np.float64)
    edited = {"ones": np.ones_like(upstream), "negated": -upstream, "left out": 0 * upstream}
    edited |= {"averaged": upstream / max(upstream.size, 1), "doubled": 2.0 * upstream}
    edited["negated alone"] = -upstream
    if call.each.ndim > 1:
        edited["next"] = np.roll(upstream.reshape(call.each.shape), -1, axis=-2).reshape(upstream.shape)
    g, g_entropy = data.lift(edited.get(chosen["upstream"], upstream), call.dtype), None
    if chosen["with_entropy"]:
        given = np.asarray(data["grad_entropy"]).astype(np.float64)
        sign = -1.0 if chosen["upstream"] == "negated" else _scale(chosen, given)
        g_entropy = data.lift(np.ones_like(given) if chosen["of_entropy"] == "ones" else sign * given, call.dtype)
    if chosen["derived"] != "by autograd":
        slope = _formula(call, g, g_entropy)
    else:
        forward = outputs(call)
        loss = _of_logprobs(data, chosen, g, forward["logprobs"])
        if g_entropy is not None:
            loss = loss + (g_entropy * forward["entropy"]).sum()
        (slope,) = gradient(loss, call.x)
    if chosen["ignored"] == "0" and chosen["normaliser"] == "all":  # logits that are not read cannot overflow
        slope = where(call.counts.any(axis=-1, keepdims=True), slope, 0.0)
    if chosen["at"] == "ids":
        of_ids = (call.each[..., None] == np.arange(call.x.shape[-1])).any(axis=-2)
        slope = where(of_ids, slope, 0.0)
    return {"gradient": CHAINS[chosen["chain"]](slope, call.tau)}


def _scale(chosen: Choices, given: Array) -> float:
    """Return the factor of the entropy's part."""
    scales: dict[Any, float] = {
        "averaged": 1.0 / max(given.size, 1),
        "times τ": chosen["tau"],
        "over τ": 1.0 / chosen["tau"],
        "ones": 1.0,
    }
    return scales[chosen["of_entropy"]] if chosen["of_entropy"] in scales else float(chosen["of_entropy"])


def _of_logprobs(data: Data, chosen: Choices, g: Value, logprobs: Value) -> Value:
    """Return Σ g·lp, or what an edit makes of its two parts, that of the ids and that of the normaliser."""
    kind = chosen["upstream"]
    if kind not in PARTS:
        return (g * logprobs).sum()
    ids = outputs(Call(data, {**chosen, "normaliser": "constant"}))["logprobs"]
    rest = outputs(Call(data, {**chosen, "value": "constant"}))["logprobs"]
    return PARTS[kind](g, ids, rest)


PARTS: Mapping[str, Callable[[Value, Value, Value], Value]] = {  # functions of g, the ids' part and the normaliser's
    "onehot": lambda g, ids, rest: (g * ids).sum() + rest.sum(),
    "normaliser": lambda g, ids, rest: ids.sum() + (g * rest).sum(),
    "added": lambda g, ids, rest: (g * ids).sum() - (g * rest).sum(),
    "first normaliser": lambda g, ids, rest: (g * ids).sum() + (g * rest)[..., 0].sum(),
    "mean normaliser": lambda g, ids, rest: (g * ids).sum() + (g * rest).mean(-1).sum(),
}
CHAINS: Mapping[str, Callable[[Value, Value], Value]] = {  # functions of the gradient by the logits and of τ
    "over τ": lambda slope, tau: slope,  # noqa: ARG005
    "left out": lambda slope, tau: slope * tau,
    "times τ": lambda slope, tau: slope * tau * tau,
    "twice": lambda slope, tau: slope / tau,
}


def _formula(call: Call, g: Value, g_entropy: Value) -> Value:
    """Return (Σ g (onehot − p) − g_H p (log p + H)) / τ."""
    form = log_softmax(call, call.scaled("divides"), FORMS[0])
    p = form.p if call.chosen["derived"] == FORMULAS[0] else call.kept(exp(form.logps))
    ids, nothing = np.arange(call.x.shape[-1]), call.data.lift(0.0, call.dtype)
    g = where(call.counts, g.reshape(*call.each.shape), 0.0)
    onehot = call.each[..., None] == ids
    each = (g[..., k : k + 1] * (onehot[..., k, :].astype(np.float64) - p) for k in range(g.shape[-1]))
    slope = sum(each, nothing)
    if g_entropy is not None:
        h = -(p * form.logps).sum(-1, keepdims=True)
        slope = slope - g_entropy.reshape(*g_entropy.shape, 1) * p * (form.logps + h)
    return where(call.possible | onehot.any(axis=-2), slope / call.tau, nothing)


PROGRAM = Program(
    op="selective_log_softmax_backward",
    asked=asked,
    compute=compute,
    edits=edits.of_gradient,
    inputs=generators.designed_gradient,
    outputs=("gradient",),
    places=generators.places_of_gradient,
    presets=edits.presets,
    examples=generators.examples_of_gradient,
    pairs=False,
)
PROGRAMS = (PROGRAM,)


def selective_log_softmax_backward(**inputs: Any) -> dict[str, Floats]:
    """Return the textbook limits of `gradient` (…, V): each pair of forms differentiated, and the closed form."""
    by_form = [{"form": form, "entropy": ENTROPY_FORMS[i % 3]} for i, form in enumerate(forms(inputs))]
    return limits(PROGRAM, inputs, [*by_form, *({"derived": formula} for formula in FORMULAS)])
