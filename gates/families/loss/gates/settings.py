"""Does every setting of a loss act, and are losses of extreme ratios finite exactly where the definition is?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families.loss import calls, cases, laws
from gates.families.loss.op import POLICY_LOSS
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial, precondition
from gates.registry import gate
from gates_reference.algorithms import ALGORITHMS, taking

Changes = Mapping[str, Any]
SPREAD = 0.6  # standard deviation of log-ratios, with which every bound stops some token
WITH_KL = tuple(name for name, row in ALGORITHMS.items() if row.kl_in_loss)
TWO_SIDED = tuple(name for name, row in ALGORITHMS.items() if row.two_sided)
LEVELS = ("grpo", "gspo", "gmpo")  # a clip of each token's ratio, of a row's, and in log space
SETTINGS: dict[str, tuple[tuple[str, ...], Changes, Changes]] = {  # algorithms, setting before, setting after
    "epsilon-low": (LEVELS, {}, {"epsilon_low": 0.1}),
    "epsilon-high": ((*LEVELS, "cispo"), {}, {"epsilon_high": 0.1}),
    "delta": (("grpo", "gspo"), {}, {"delta": 1.35}),
    "beta": (("grpo", "dapo", "gmpo"), {"beta": 0.1}, {"beta": 0.2}),
    "kl-estimator": (("grpo", "gspo"), {"beta": 0.1}, {"kl_estimator": "k2"}),
    "kl-ratio": (("grpo", "sapo"), {"beta": 0.1}, {"kl_ratio": "token"}),
    "max-length": (taking("max_length"), {}, {"max_length": 40}),
    "micro-batches": (taking("micro_batches"), {}, {"micro_batches": [3, 5]}),
    "denominator": (taking("dapo_denominator"), {}, {"dapo_denominator": "group", "group_size": 4}),
    "group-size": (("dapo",), {"dapo_denominator": "group", "group_size": 4}, {"group_size": 2}),
    "tokens": (
        ("cispo",),
        {"dapo_denominator": "trl", "tokens_in_step": 100.0},
        {"tokens_in_step": 150.0},
    ),
    "bound": (taking("cispo_bound"), {"epsilon_high": 0.8}, {"cispo_bound": "absolute"}),
    "temperature-positive": (taking("sapo_temperature_positive"), {}, {"sapo_temperature_positive": 2.0}),
    "temperature-negative": (taking("sapo_temperature_negative"), {}, {"sapo_temperature_negative": 2.0}),
}
SHARE = 0.5  # of the definition's own change; the precondition makes half of it far larger than any rounding
LEAST = 1e3  # least change of the definition itself, in units of rounding


def _make(rng: np.random.Generator, algorithm: str, before: Changes, after: Changes) -> dict[str, Any]:
    data: dict[str, Any] = {"spread": SPREAD, **calls.batch_for(algorithm)}
    call = calls.make(rng, algorithm, data, before)
    if ALGORITHMS[algorithm].mean_ratio:  # mean ratios need bounds nearer to 1
        own = {"epsilon_low": 0.2, "epsilon_high": 0.2, "delta": 1.06}
        after = {name: own.get(name, value) for name, value in after.items()}
    return {"before": call, "after": {**call, **after}}


@dataclass(frozen=True, slots=True)
class _Change:
    """The change of the definition's gradient between two settings, and the unit of the rounding errors."""

    exact: float
    unit: float
    roundings: float

    def preconditions(self) -> Iterator[Evidence]:
        yield precondition("the definition's change of the gradient in 2u·S", self.exact / self.unit, ">=", LEAST)
        share = 2 * self.roundings * self.unit / max(self.exact, self.unit)
        yield precondition("its share that rounding could explain", share, "<=", 0.25)


def _change(inputs: Mapping[str, Any], want: Callable[..., Any]) -> _Change:
    sides = (inputs["before"], inputs["after"])
    wanted = [want(POLICY_LOSS, **calls.rounded(side)) for side in sides]
    unit = 2 * UNIT[str(sides[0]["policy"].dtype)] * max(float(x.gradient_scale.max()) for x in wanted)
    exact = float(np.abs(wanted[0].gradient - wanted[1].gradient).max())
    return _Change(exact, unit, max(laws.roundings(side) for side in sides))


def _cases() -> Iterator[Case]:
    for name, (algorithms, before, after) in SETTINGS.items():
        for algorithm in algorithms:
            conventions = cases.case(algorithm, name, **{**before, **after}).conventions
            of_algorithm = partial(_make, algorithm=algorithm, before=before, after=after)
            quick = algorithm in {"grpo", "dr_grpo", "bnpo-trl", "cispo", "sapo"}
            yield Case(f"{algorithm}-{name}", of_algorithm, quick=quick, conventions=conventions)


def _definition_acts(t: Draw) -> Iterator[Evidence]:
    yield from _change(t.inputs, t.want).preconditions()


@gate(
    "loss.settings-act",
    level="law",
    name="policy_loss[settings]",
    question="Does each setting of a loss change its gradient, as much as in the definition?",
    why="A setting that is read and not passed on, or clipped away, is tuned for weeks and does nothing.",
    ops=(POLICY_LOSS,),
    cases=tuple(_cases()),
    bounds={
        "change of the gradient, as a share of the definition's": Bound(
            "derived",
            "the definition changes by at least 1000 units of rounding, each call errs by few: half of it is no rounding",
            SHARE,
        ),
        "elements that change without a change of settings": Bound(
            "exact", "the same call is the same computation", 0.0
        ),
    },
    requires=_definition_acts,
)
def settings_act(t: Trial) -> Iterator[Evidence]:
    """Call with one setting, the other, and the first again: the gradient must change and change back."""
    before, after = t.inputs["before"], t.inputs["after"]
    want = _change(t.inputs, t.want)
    got, changed, again = (t.got(POLICY_LOSS, **side)["gradient"] for side in (before, after, before))
    change = float(np.abs(got.astype(np.float64) - changed).max())
    yield t.number("change of the gradient, as a share of the definition's", change / max(want.exact, want.unit), ">=")
    moved = int(np.sum(got != again))
    yield t.number("elements that change without a change of settings", moved, "<=")


FAR = {"beyond-float32": 95.0, "beyond-float64": 1000.0}  # nats, whose exp overflows
WHICH = "overflow and its sign are those of the definition, rounded to the data's dtype; either is right of an element whose ratio that dtype does not hold"
HELD = 0.7  # nats: beyond every clip, so no gradient is left if the advantage has the same sign
SMALLEST = 0.3  # smallest factor of an extreme ratio: beta, or an |advantage| of at least 0.5
EXTREME = {
    "NaN among loss and gradient": Bound("exact", "an overflowing exp gives +inf, never NaN", 0.0),
    "infinite where the definition is finite, or the other way round": Bound("exact", WHICH, 0.0),
    "largest |gradient| in masked slots": Bound("exact", "masked slots are selected away, infinite rows too", 0.0),
    "error of finite gradients in 2u·S": Bound(
        "derived", f"{laws.LAW_BECAUSE}; S the largest finite element's", lambda t: t.facts["roundings"], "precision"
    ),
}


def _extreme(
    rng: np.random.Generator, algorithm: str, dtype: str, sign: float, size: float, changes: Changes
) -> dict[str, Any]:
    """Return a step in which a token of row 0 has a log-ratio of +size and one of row 2 of −size.

    `sign` is that of the advantages in these rows; 0 makes them 0, as in a group of equal rewards. Every clip holds the
    second token of row 0. With a KL the reference is as far from the policy in rows 4 and 6.
    """
    call = calls.make(rng, algorithm, {"dtype": dtype, "spread": 0.1, "rows": 8}, changes)
    for low, high, rows in (("old", "policy", (0, 2)), ("policy", "reference", (4, 6))):
        if call[high] is None:
            continue
        for row, lowered in zip(rows, (low, high), strict=True):
            call[lowered] = call[lowered].copy()
            call[lowered][row, 0] -= size
        if high == "reference":
            call["old"] = np.where(call["policy"] < -size / 2, call["policy"], call["old"])
    call["old"] = call["old"].copy()
    call["old"][0, 1] = call["policy"][0, 1] - np.copysign(HELD, sign)
    advantages = np.array(call["advantages"])
    advantages[[0, 2]] = sign * (np.abs(advantages[[0, 2]]) + 0.5)
    return {**call, "advantages": advantages}


def _extreme_cases() -> Iterator[Case]:
    """Yield every algorithm far beyond float32, and one for each ratio level at the other ends and settings."""
    for algorithm, sign in product(ALGORITHMS, (1.0, -1.0)):
        yield _extreme_case(algorithm, "plain", "beyond-float64", sign, "float32")
    for algorithm in cases.LEVELS:
        yield _extreme_case(algorithm, "plain", "beyond-float64", 0.0, "float32")
        yield _extreme_case(algorithm, "plain", "beyond-float64", -1.0, "float64")
        yield _extreme_case(algorithm, "plain", "beyond-float32", -1.0, "float32")
        if algorithm in WITH_KL:
            yield _extreme_case(algorithm, "kl", "beyond-float64", 1.0, "float32")
            yield _extreme_case(algorithm, "kl", "beyond-float64", -1.0, "float32")
        if algorithm in TWO_SIDED:
            yield _extreme_case(algorithm, "two-sided", "beyond-float64", -1.0, "float32")
    yield _extreme_case("grpo", "plain", "beyond-float32", 0.0, "float32")
    summed = next(row.name for row in ALGORITHMS.values() if row.aggregation == "row-sum")
    yield _extreme_case(summed, "kl", "beyond-float64", -1.0, "float32")  # an intermediate overflows


def _extreme_case(algorithm: str, kind: str, far: str, sign: float, dtype: str) -> Case:
    changes: Changes = {"plain": {}, "kl": {"beta": 0.3}, "two-sided": {"delta": 1.5}}[kind]
    name = f"{algorithm}-{kind}-{far}-{'gain' if sign > 0 else 'loss' if sign else 'neither'}-{dtype}"
    conventions = dict(cases.case(algorithm, name, data={"dtype": dtype}, **changes).conventions)
    conventions["advantages"] = "row"
    if kind == "kl":
        conventions["kl_clamp"] = None
    made = partial(_extreme, algorithm=algorithm, dtype=dtype, sign=sign, size=FAR[far], changes=changes)
    quick = algorithm in {"grpo", "rloo", "gmpo"} and dtype == "float32" and far == "beyond-float64"
    return Case(name, made, quick=quick, conventions=conventions)


def _extreme_and_defined(t: Draw) -> Iterator[Evidence]:
    inputs, valid = t.inputs, t.inputs["mask"]
    want = t.want(POLICY_LOSS, **calls.rounded(inputs))
    apart = inputs["policy"].astype(np.float64) - inputs["old"]
    yield t.precondition("largest |policy − old|", np.abs(apart[valid]).max(), ">=", 90.0)
    yield t.precondition("NaN in the definition", float(np.isnan([want.loss, *want.gradient[valid]]).sum()), "<=", 0.0)


@gate(
    "loss.extreme-ratios-stay-numbers",
    level="hardening",
    name="policy_loss[overflow]",
    question="With log-ratios of ±95 and ±1000, is nothing NaN, and infinite exactly what the definition makes infinite?",
    why="inf · 0 is NaN: one token that the policy has given up turns a whole update into NaN, or a clamp hides it.",
    ops=(POLICY_LOSS,),
    cases=tuple(_extreme_cases()),
    bounds=EXTREME,
    requires=_extreme_and_defined,
    probes=(Probe("policy_loss", ("gradient",)),),
)
def extreme_ratios_stay_numbers(t: Trial) -> Iterator[Evidence]:
    """Compare where loss and gradient overflow, and the values of the other elements."""
    inputs = dict(t.inputs)
    want = t.want(POLICY_LOSS, **calls.rounded(inputs))
    valid, dtype = inputs["mask"], inputs["policy"].dtype
    apart = inputs["policy"].astype(np.float64) - inputs["old"]
    ordinary = np.abs(apart) < 50.0
    others = np.where(ordinary & valid, apart, 0.0)
    t.facts["roundings"] = 4.0 + float(np.abs(others).max()) + int(valid.sum(axis=1).max())
    got = t.got(POLICY_LOSS, **inputs)
    gradient = np.asarray(got["gradient"], np.float64)
    nan = int(np.isnan(gradient).sum()) + int(np.isnan(got["loss"]))
    yield t.number("NaN among loss and gradient", nan, "<=", where=_first(np.isnan(gradient)))
    with np.errstate(over="ignore"):
        exact = want.gradient.astype(dtype).astype(np.float64)
        limit = float(np.finfo(dtype).max)
    shares = valid.shape[0] * max(valid.shape[1], int(inputs.get("max_length") or 0)) / SMALLEST  # the largest divisor
    # infinite in this dtype, as its ratio is
    early = np.isinf(gradient) & np.isfinite(exact) & (np.abs(want.gradient) > limit / shares)
    otherwise = (np.isfinite(exact) != np.isfinite(gradient)) & ~early
    otherwise |= (np.isinf(exact) | early) & (np.sign(exact) != np.sign(gradient))
    too_large = abs(want.loss) > limit  # float32 data may have been summed in float64
    loss = float(got["loss"])
    wrong_end = np.sign(loss) != np.sign(want.loss)
    if too_large:
        off = abs(loss) < limit or wrong_end
    else:
        off = not np.isfinite(loss) and (abs(want.loss) <= limit / shares or wrong_end)
    which = "infinite where the definition is finite, or the other way round"
    yield t.number(which, int(otherwise.sum()) + int(off), "<=", where=_first(otherwise) or f"loss {loss:.6g}")
    yield t.number("largest |gradient| in masked slots", float(np.abs(gradient[~valid]).max()), "<=")
    finite = valid & np.isfinite(exact) & ~early & np.isfinite(want.gradient_scale) & (want.gradient_scale < limit)
    scale = 2 * UNIT[str(dtype)] * float(want.gradient_scale[finite].max())
    limits = t.textbook(POLICY_LOSS, **inputs)["gradient"][finite]
    quantity = "error of finite gradients in 2u·S"
    yield from t.agrees(quantity, gradient[finite], want.gradient[finite], limits, scale=scale)


def _first(where: Array) -> str:
    rows, columns = np.nonzero(where)
    return f"row {rows[0]}, token {columns[0]}" if len(rows) else ""
