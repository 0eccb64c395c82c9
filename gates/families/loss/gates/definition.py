"""Do policy losses have the value and gradient of their definition, independently of padding?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gates.families.loss import calls, cases, laws
from gates.families.loss.branches import on_a_branch
from gates.families.loss.op import POLICY_LOSS
from gates.families.loss.program import row_of
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Draw, Evidence, Level, Probe, Trial
from gates.registry import gate
from gates_reference.algorithms import ALGORITHMS, AXES, Algorithm
from gates_reference.oracle import ratio
from gates_reference.oracle.losses import PolicyLoss

FAR = 0.3  # |policy − old| beyond which some ratio is outside a clip range of 0.2
LIMIT_BECAUSE = (
    "evaluation in the data's dtype: 4 roundings per term, |D|max for the rounding of D inside exp, one per summand of "
    "a row, in units of 2u·S with S = Σ|terms|/denominator (gradient: its largest element)"
)
BOUNDS = {
    "loss error in 2u·S": Bound("derived", LIMIT_BECAUSE, lambda t: t.facts["roundings"], "precision"),
    "gradient error in 2u·S": Bound("derived", LIMIT_BECAUSE, lambda t: t.facts["roundings"], "precision"),
    "largest |gradient| in masked slots": Bound("exact", "masked slots are selected away", 0.0),
}
KERNEL_BECAUSE = (
    "k·2u·S: differences of log-probs without error, sums of float32 data in float64 and of float64 data compensated"
)
PRECISE = {
    f"{quantity} error in 2u·S ({dtype})": Bound("derived", f"{KERNEL_BECAUSE}; k = {k:g}{own}", k)
    for quantity in ("loss", "gradient")
    for dtype, k, own in (("float32", 4.0, ""), ("float64", 8.0, ", with the oracle's own rounding of at most 3"))
}


def _check(t: Trial) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    want = t.want(POLICY_LOSS, **calls.rounded(inputs))
    valid = calls.valid(inputs)
    distance = _distances(inputs)
    width = int(np.bincount(calls.rows_of(inputs)[valid]).max())
    t.facts["roundings"] = 4.0 + float(distance.max()) + width
    got = t.got(POLICY_LOSS, **inputs)
    unit = 2 * UNIT[str(inputs["policy"].dtype)]
    limits = t.textbook(POLICY_LOSS, **inputs)
    if (apart := _apart(want, row_of(inputs), limits)) > 1.0:
        yield t.precondition("distance of the forward formula from the definition in its own limits", apart, "<=", 1.0)
    loss, gradient = on_a_branch(want, got["loss"], got["gradient"])
    yield from t.agrees("loss error in 2u·S", loss, want.loss, limits["loss"], scale=unit * want.loss_scale)
    largest = unit * float(np.max(want.gradient_scale))
    slopes = np.where(valid, gradient, 0.0)
    yield from t.agrees("gradient error in 2u·S", slopes, want.gradient, limits["gradient"], scale=largest)
    outside = np.abs(got["gradient"][~valid])
    if outside.size:
        yield t.number("largest |gradient| in masked slots", _largest(outside), "<=")


def _apart(want: PolicyLoss, row: Algorithm, limits: Mapping[str, Array]) -> float:
    """Return how far the forward formula, which the table of algorithms drives, is from the oracle, which has its own choices."""
    if want.choices != (*(getattr(row, axis) for axis in AXES), row.kl):
        return math.inf
    loss, gradient = on_a_branch(want, limits["loss_value"], limits["gradient_value"])
    pairs = ((loss, want.loss, limits["loss"]), (gradient, want.gradient, limits["gradient"]))
    return max(_in_limits(*pair) for pair in pairs)


def _in_limits(got: Any, want: Any, limit: Any) -> float:
    """Return the largest error in limits, over the elements with a finite limit."""
    off, room = np.atleast_1d(np.abs(np.subtract(got, want))), np.atleast_1d(np.asarray(limit, np.float64))
    wrong = np.isfinite(room) & (off > 0.0)
    if np.any(wrong & (room == 0.0)):
        return math.inf
    return float(np.max(off[wrong] / room[wrong], initial=0.0))


def _preconditions(t: Draw) -> Iterator[Evidence]:
    want, distance = t.want(POLICY_LOSS, **calls.rounded(t.inputs)), _distances(t.inputs)
    valid = calls.valid(t.inputs)
    yield t.precondition("largest |∂loss/∂policy| of the definition", np.abs(want.gradient).max(), ">", 1e-3)
    if t.inputs["old"] is not None:
        yield t.precondition("largest |policy − old|", distance.max(), ">=", 0.03, "a ratio of 1 hides every ratio")
    yield t.precondition("share of elements at a clip bound", want.near_branch[valid].mean(), "<", 0.01)


def _bounds_act(t: Draw) -> Iterator[Evidence]:
    yield from _preconditions(t)
    inputs = t.inputs
    if inputs["epsilon_low"] is not None and inputs["old"] is not None and _distances(inputs).max() > FAR:
        yield t.precondition("tokens or rows that the clip stops", _stopped(inputs), ">=", 1)
    if inputs.get("kl_clamp") is not None:
        want, free = (t.want(POLICY_LOSS, **{**calls.rounded(inputs), **off}) for off in ({}, {"kl_clamp": None}))
        change = np.abs(free.gradient - want.gradient).max()
        yield t.precondition("largest change of the gradient by the clamp", change, ">", 1e-3)


def _distances(inputs: Mapping[str, Any]) -> Array:
    valid = calls.valid(inputs)
    others = [x for x in (inputs["old"], inputs["reference"]) if x is not None]
    distances = [np.abs(inputs["policy"].astype(np.float64) - other)[valid] for other in others]
    return np.concatenate([*distances, np.zeros(1)])


def _stopped(inputs: Mapping[str, Any]) -> int:
    """Count the ratios (of tokens, or of their sequence) that leave the clip range in the direction of A."""
    pair = {name: inputs[name] for name in ("policy", "old", "mask", "lengths")}
    advantage, valid = calls.of_elements(inputs, inputs["advantages"]), calls.valid(inputs)
    row = row_of(inputs)
    level = "token" if row.bound == "log-clip" else row.value_level
    r = calls.of_elements(inputs, ratio.importance_ratio(**pair, level=level))
    high, low = 1.0 + inputs["epsilon_high"], 1.0 - inputs["epsilon_low"]
    if row.bound == "log-clip":
        high, low = np.exp(inputs["epsilon_high"]), np.exp(-inputs["epsilon_low"])
    return int(np.sum(valid & (((advantage > 0) & (r > high)) | ((advantage < 0) & (r < low)))))


def _largest(values: Array) -> float:
    return float(np.max(values)) if values.size else 0.0


def _register(id_: str, kind: str, asked: Iterable[Case], question: str, why: str, together: str = "") -> None:
    """Register a gate that compares loss and gradient with the definition."""
    gate(
        id_,
        level="definition",
        name=f"policy_loss[{kind}]",
        together=together,
        question=question,
        why=why,
        ops=(POLICY_LOSS,),
        cases=tuple(asked),
        bounds=BOUNDS,
        requires=_bounds_act,
        probes=(Probe("policy_loss", ("loss", "gradient")),),
    )(_check)


for _one in ALGORITHMS.values():
    _register(
        _one.gate,
        _one.name,
        cases.cases_of(_one.name),
        f"Are {_one.name}'s loss and ∂loss/∂policy those of {_one.loss}, {_one.source}?",
        "A wrong denominator, a dead clip or a detached ratio changes the objective and leaves a plausible curve.",
    )
_register(
    "loss.variants.match-definitions",
    "variants",
    cases.variants(),
    "Are loss and ∂loss/∂policy of presets with another choice those of their composition?",
    "Libraries ship an algorithm's ratio under another one's aggregation: by the name alone it is another loss.",
)
_register(
    "loss.compositions.match-definitions",
    "compositions",
    cases.compositions(),
    "Does every two choices of ratio, bound, aggregation and KL together give the loss and gradient of their composition?",
    "A choice that is right alone may be wrong beside another one: a row's ratio under a mean over tokens, for one.",
    together="compositions",
)


@gate(
    "loss.full-precision",
    level="precision",
    name="policy_loss[precision]",
    question="Is every element of the gradient, and the loss, within k·2u·S of its definition, for ratios near and far from 1?",
    why="Rounding a difference of log-probs costs 8 ulp of exp at |D| = 10; a plain sum of a long row costs more.",
    ops=(POLICY_LOSS,),
    cases=tuple(cases.precise_cases()),
    bounds=PRECISE,
    requires=_preconditions,
    probes=(Probe("policy_loss", ("loss", "gradient")),),
)
def full_precision(t: Trial) -> Iterator[Evidence]:
    """Compare every element with the bound of kernels, for subjects that compute wider than their data."""
    inputs = dict(t.inputs)
    want = t.want(POLICY_LOSS, **calls.rounded(inputs))
    got = t.got(POLICY_LOSS, **inputs)
    dtype = inputs["policy"].dtype
    unit, loss, gradient = 2 * UNIT[str(dtype)], *on_a_branch(want, got["loss"], got["gradient"])
    yield t.within(f"loss error in 2u·S ({dtype})", loss, want.loss, scale=unit * want.loss_scale)
    least = float(np.finfo(dtype).tiny)  # smaller numbers have fewer bits
    scale = np.where(want.gradient_scale > 0.0, np.maximum(want.gradient_scale, least), 0.0)
    yield t.within(f"gradient error in 2u·S ({dtype})", gradient, want.gradient, scale=unit * scale)


NAMES = ("policy", "old", "reference", "advantages")
POISON = {  # replaces the content of masked slots
    "ordinary": (-0.5, -0.9, -0.7, 1.3),
    "nan": (math.nan,) * 4,
    "minus-inf": (-math.inf,) * 4,
    "absurd": (-1e4, -2e4, -3e4, -1e4),  # whose ratios overflow
}


def _poison_case(algorithm: str, poison: str, *, quick: bool = False) -> Case:
    beta = 0.04 if ALGORITHMS[algorithm].kl_in_loss else 0.0
    clean = cases.case(algorithm, f"{algorithm}-{poison}", beta=beta, quick=quick)
    level: Level | None = None if poison == "ordinary" else "hardening"
    return cases.derived(clean, lambda rng, make: {**make(rng), "poison": poison}, level=level)


def _poison_cases() -> Iterator[Case]:
    for algorithm in ALGORITHMS:
        yield _poison_case(algorithm, "ordinary", quick=algorithm in cases.LEVELS)
        yield _poison_case(algorithm, "nan", quick=algorithm == "grpo")
    for algorithm in ("grpo", "gspo", "rloo"):  # ratio levels: token, mean of a row, sum of a row
        yield from (_poison_case(algorithm, poison) for poison in ("minus-inf", "absurd"))


def _some_padding(t: Draw) -> Iterator[Evidence]:
    yield t.precondition("masked slots", int((~t.inputs["mask"]).sum()), ">=", 8)


@gate(
    "loss.padding-is-inert",
    level="law",
    name="policy_loss[padding]",
    question="Do loss and gradient keep every bit when the masked slots hold other numbers, NaN or infinities?",
    why="NaN · 0 is NaN: a mask that multiplies lets one padded log-prob destroy a whole step.",
    ops=(POLICY_LOSS,),
    cases=tuple(_poison_cases()),
    bounds={
        "elements of loss and gradient that change": Bound("exact", "a masked slot is no input of the loss", 0.0),
        "largest |gradient| in masked slots": Bound("exact", "masked slots are selected away", 0.0),
    },
    requires=_some_padding,
)
def padding_is_inert(t: Trial) -> Iterator[Evidence]:
    """Compute the loss with two contents of the masked slots; as the control, change slots that count."""
    inputs = {name: value for name, value in t.inputs.items() if name != "poison"}
    mask, poison = inputs["mask"], t.inputs["poison"]
    clean = t.got(POLICY_LOSS, **inputs)
    poisoned = {
        name: np.where(mask, inputs[name], np.float32(value))
        for name, value in zip(NAMES, POISON[poison], strict=True)
        if inputs[name] is not None and inputs[name].shape == mask.shape
    }
    got = t.got(POLICY_LOSS, **{**inputs, **poisoned})
    differing = int(not laws.same(clean["loss"], got["loss"])) + int(
        np.sum(~laws.same(clean["gradient"], got["gradient"]))
    )
    where = f"{poison} numbers in masked slots, loss {float(got['loss']):.6g} instead of {float(clean['loss']):.6g}"
    yield t.number("elements of loss and gradient that change", differing, "<=", where=where)
    yield t.number("largest |gradient| in masked slots", _largest(np.abs(got["gradient"][~mask])), "<=")
    counted = inputs["policy"] - np.float32(0.25) * mask
    moved = t.got(POLICY_LOSS, **{**inputs, "policy": counted})
    # The loss alone moves by less than 1e-5 at one seed in a thousand, because its terms have both signs.
    change = np.abs([*np.ravel(moved["gradient"] - clean["gradient"]), moved["loss"] - clean["loss"]]).max()
    yield t.negative_control(
        "largest change of loss and gradient when counted slots move",
        change,
        ">",
        1e-5,
        "a hundred roundings of float32",
    )
