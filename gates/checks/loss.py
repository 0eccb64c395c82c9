"""Do policy losses have the value and the gradient of their definition, and does padding stay out of them?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates import cases
from gates.checks.ops import FLOAT32_U, POLICY_LOSS
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import ratio

BASE: dict[str, Any] = {
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "delta": None,
    "beta": 0.0,
    "kl_ratio": "none",
    "max_length": None,
    "micro_batches": None,
    "dapo_denominator": None,
}
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("mean_i(Σ_t m·l / n_i), arXiv 2402.03300 eq. 3", {}),
    "dapo": (
        "Σ m·l / Σ m with ε_low 0.2, ε_high 0.28, arXiv 2503.14476 eq. 8",
        {"epsilon_high": 0.28, "dapo_denominator": "global"},
    ),
    "bnpo-trl": ("mean over micro-batches of Σ m·l / Σ m, TRL's loss_type bnpo", {"micro_batches": [4, 4]}),
    "dr_grpo": ("Σ m·l / (B · L_max), L_max the configured constant, arXiv 2503.20783", {"max_length": 32}),
    "gspo": (
        "mean_i l_i with r_i = exp(Σ m·D / n_i), arXiv 2507.18071 eq. 5",
        {"epsilon_low": 0.03, "epsilon_high": 0.04},
    ),
    "rloo": ("−mean_i r_i·A_i with r_i = exp(Σ m·D), arXiv 2402.14740", {"epsilon_low": None, "epsilon_high": None}),
}
FAR = 0.4  # |policy − old| beyond which some ratio must have left a clip range of 0.2
CLIPPED = tuple(name for name in ALGORITHMS if name != "rloo")
LIMIT_BECAUSE = (
    "float32 evaluation: 4 roundings per term, |D|max for the rounding of D inside exp, one per summand of a row, "
    "in units of 2u·S with S = Σ|terms|/denominator (gradient: its largest element)"
)
BOUNDS = {
    "loss error in 2u·S": Bound("derived", LIMIT_BECAUSE, lambda t: t.facts["roundings"]),
    "gradient error in 2u·S": Bound("derived", LIMIT_BECAUSE, lambda t: t.facts["roundings"]),
    "largest |gradient| in masked slots": Bound("exact", "masked slots are selected away", 0.0),
}


def _make(
    rng: np.random.Generator, algorithm: str, data: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    inputs = cases.loss_inputs(rng, **data)
    choice = {**BASE, **ALGORITHMS[algorithm][1], **changes}
    inputs["reference"] = inputs["reference"] if choice["beta"] else None
    if changes.get("old", "given") is None:
        inputs["old"] = None
    return {**inputs, "algorithm": algorithm, **{k: v for k, v in choice.items() if k != "old"}}


def _cases(algorithm: str) -> tuple[Case, ...]:
    def case(name: str, *, data: Mapping[str, Any] | None = None, quick: bool = False, **changes: Any) -> Case:
        conventions = {"algorithm": algorithm, "dtype": "float32", "kl_ratio": changes.get("kl_ratio", "none")}
        rows = {"rows": 24} if algorithm == "gspo" else {}  # a clip of whole rows needs rows enough to act on some
        make = partial(_make, algorithm=algorithm, data={**rows, **(data or {})}, changes=changes)
        return Case(name, make, quick=quick, conventions=conventions)

    found = [
        case("ragged", quick=True),
        case("small-ratios", data={"spread": 0.02}),
        case("equal-lengths", data={"equal_lengths": True}),
        case("empty-row", data={"empty_row": True}),
        case("on-policy", old=None),
    ]
    if algorithm != "rloo":
        found += [case("kl", beta=0.04, quick=True), case("two-sided-clip", delta=1.5)]
        found += [case(f"kl-times-{level}-ratio", beta=0.04, kl_ratio=level) for level in ("token", "sequence")]
    return tuple(found)


def _check(t: Trial) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    wanted = t.want(POLICY_LOSS, **inputs)
    mask = inputs["mask"]
    distance = _distances(inputs)
    t.facts["roundings"] = 4.0 + float(distance.max()) + mask.shape[1]
    yield t.signal("largest |∂loss/∂policy| of the definition", np.abs(wanted.gradient).max(), ">", 1e-3)
    if inputs["old"] is not None:
        yield t.signal("largest |policy − old|", distance.max(), ">=", 0.03, "a ratio of 1 hides every ratio")
    near = wanted.near_branch & mask
    yield t.signal("share of elements at a clip bound", near.sum() / mask.sum(), "<", 0.01)
    if inputs["algorithm"] in CLIPPED and inputs["old"] is not None and distance.max() > FAR:
        yield t.signal("tokens or rows that the clip stops", _stopped(inputs), ">=", 1)
    got = t.got(POLICY_LOSS, **inputs)
    yield t.within("loss error in 2u·S", got["loss"], wanted.loss, scale=2 * FLOAT32_U * wanted.loss_scale)
    gradient = np.where(near, wanted.gradient, got["gradient"].astype(np.float64))
    unit = 2 * FLOAT32_U * float(np.max(wanted.gradient_scale))
    yield t.within("gradient error in 2u·S", np.where(mask, gradient, 0.0), wanted.gradient, scale=unit)
    outside = np.abs(got["gradient"][~mask])
    if outside.size:
        yield t.number("largest |gradient| in masked slots", _largest(outside), "<=")


def _distances(inputs: Mapping[str, Any]) -> Array:
    mask = inputs["mask"]
    others = [x for x in (inputs["old"], inputs["reference"]) if x is not None]
    found = [np.abs(inputs["policy"].astype(np.float64) - other)[mask] for other in others]
    return np.concatenate([*found, np.zeros(1)])


def _stopped(inputs: Mapping[str, Any]) -> int:
    """Count the token ratios (GSPO: sequence ratios) that leave the clip range in the direction that A rewards."""
    policy, old, mask = (inputs[name] for name in ("policy", "old", "mask"))
    gain = np.broadcast_to(inputs["advantages"][:, None], mask.shape)
    if inputs["algorithm"] == "gspo":
        r = np.broadcast_to(ratio.sequence_ratio(policy, old, mask, level="seq_mean")[:, None], mask.shape)
    else:
        r = ratio.token_ratio(policy, old, mask)
    high, low = 1.0 + inputs["epsilon_high"], 1.0 - inputs["epsilon_low"]
    return int(np.sum(mask & (((gain > 0) & (r > high)) | ((gain < 0) & (r < low)))))


def _largest(values: Array) -> float:
    return float(np.max(values)) if values.size else 0.0


def _register(algorithm: str) -> Callable[[Trial], Iterator[Evidence]]:
    formula, _ = ALGORITHMS[algorithm]
    return gate(
        f"loss.{algorithm.replace('_', '-')}.matches-definition",
        name=f"policy_loss[{algorithm}]",
        question=f"Are {algorithm}'s loss and ∂loss/∂policy those of {formula}?",
        why="A wrong denominator, a dead clip or a detached ratio changes the objective and leaves a plausible curve.",
        ops=(POLICY_LOSS,),
        cases=_cases(algorithm),
        bounds=BOUNDS,
        probes=(Probe("policy_loss", ("loss", "gradient")),),
    )(_check)


for _algorithm in ALGORITHMS:
    _register(_algorithm)


def _poison_case(algorithm: str, value: float, *, quick: bool = False) -> Case:
    def make(rng: np.random.Generator) -> dict[str, Any]:
        beta = 0.0 if algorithm == "rloo" else 0.04
        return {**_make(rng, algorithm, {}, {"beta": beta}), "poison": value}

    conventions = {"algorithm": algorithm, "dtype": "float32", "kl_ratio": "none"}
    return Case(f"{algorithm}-{value}", make, quick=quick, conventions=conventions)


@gate(
    "loss.padding-is-inert",
    name="policy_loss[padding]",
    question="Do loss and gradient keep every bit when the masked slots hold NaN, inf or absurd numbers?",
    why="NaN · 0 is NaN: a mask that multiplies lets one padded log-prob destroy a whole step.",
    ops=(POLICY_LOSS,),
    cases=tuple(
        _poison_case(algorithm, value, quick=algorithm == "grpo")
        for algorithm in ALGORITHMS
        for value in (float("nan"), float("-inf"), -1e4)
    ),
    bounds={
        "elements of loss and gradient that change": Bound("exact", "a masked slot is no input of the loss", 0.0),
        "largest |gradient| in masked slots": Bound("exact", "masked slots are selected away", 0.0),
    },
)
def padding_is_inert(t: Trial) -> Iterator[Evidence]:
    """Run the loss with harmless and with poisoned masked slots, and once with a change where it counts."""
    inputs = {name: value for name, value in t.inputs.items() if name != "poison"}
    mask, poison = inputs["mask"], t.inputs["poison"]
    yield t.signal("masked slots", int((~mask).sum()), ">=", 8)
    clean = t.got(POLICY_LOSS, **inputs)
    poisoned = {
        name: np.where(mask, inputs[name], np.float32(poison))
        for name in ("policy", "old", "reference")
        if inputs[name] is not None
    }
    got = t.got(POLICY_LOSS, **{**inputs, **poisoned})
    differing = int(not _same(clean["loss"], got["loss"])) + int(np.sum(~_same(clean["gradient"], got["gradient"])))
    where = f"{poison} in masked slots, loss {float(got['loss']):.6g} instead of {float(clean['loss']):.6g}"
    yield t.number("elements of loss and gradient that change", differing, "<=", where=where)
    yield t.number("largest |gradient| in masked slots", _largest(np.abs(got["gradient"][~mask])), "<=")
    counted = inputs["policy"] - np.float32(0.25) * mask
    moved = t.got(POLICY_LOSS, **{**inputs, "policy": counted})
    change = abs(float(moved["loss"]) - float(clean["loss"]))
    yield t.control(
        "change of the loss when counted slots move", change, ">", 1e-5, "a hundred times float32's rounding"
    )


def _same(a: Any, b: Any) -> Array:
    x, y = np.asarray(a), np.asarray(b)
    return np.asarray((x == y) & np.isfinite(y))
