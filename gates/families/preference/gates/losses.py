"""Do preference losses have the value and the gradient of their definition?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families.preference import inputs as generators
from gates.families.preference.op import KTO_LOSS, PREFERENCE_LOSS
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Draw, Evidence, Level, Probe, Trial
from gates.registry import gate

DTYPES = ("float32", "float64")
EMPTY = ("dpo", "ipo", "dpop", "simpo", "cpo")  # not orpo: the odds of an empty completion are infinite
# These constants keep the margins of `generators.pairs` below 9, beyond which 1 − σ(z) has less than two digits in float32.
LOSSES: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "dpo": (
        "−(1−s) log σ(Δ) − s log σ(−Δ), arXiv 2305.18290 eq. 7",
        {
            "plain": {"beta": 0.1, "label_smoothing": 0.0},
            "smoothed": {"beta": 0.3, "label_smoothing": 0.2},
            "strict": {"beta": 1.25, "label_smoothing": 0.0},
        },
    ),
    "hinge": ("max(0, 1 − Δ), arXiv 2305.10425", {"plain": {"beta": 2.0}}),
    "ipo": (
        "(x − 1/(2β))², x summed or averaged over tokens, arXiv 2310.12036 eq. 17",
        {"sum": {"beta": 0.2, "lengths": "sum"}, "mean": {"beta": 0.8, "lengths": "mean"}},
    ),
    "dpop": (
        "−log σ(Δ − βλ·max(0, ref_c − lp_c)), arXiv 2402.13228 eq. 3",
        {"plain": {"beta": 0.2, "penalty": 5.0}},
    ),
    "orpo": (
        "NLL_c − λ log σ(log-odds difference), both of token means, arXiv 2403.07691 eqs. 4 to 7",
        {"plain": {"beta": 0.4}},
    ),
    "simpo": ("−log σ(β(mean_c − mean_r) − γ), arXiv 2405.14734 eq. 6", {"plain": {"beta": 1.25, "margin": 1.2}}),
    "cpo": (
        "−log σ(β(lp_c − lp_r)) + α·NLL of all chosen tokens, arXiv 2401.08417",
        {"plain": {"beta": 0.1, "nll": 0.7}},
    ),
}
CANCELS = {"dpo": "plain", "hinge": "plain", "ipo": "sum"}  # losses in which a shared prompt may be scored
SHARED = {**CANCELS, "orpo": "plain", "simpo": "plain"}  # losses of pairs with a shared prompt
BECAUSE = (
    "k·2u·S: log-ratios summed without error, sums of the data wider or compensated; S counts the slope times the argument, "
    "which is rounded once"
)
BOUNDS = {
    **{
        f"{quantity} error in 2u·S ({dtype})": Bound("derived", f"{BECAUSE}; k = {k:g}", k, level="precision")
        for quantity in ("loss", "gradient")
        for dtype, k in (("float32", 4.0), ("float64", 8.0))
    },
    "largest |gradient| in masked slots": Bound("exact", "prompt and padding are no input of the loss", 0.0),
}


def _case(
    loss: str,
    constants: str,
    kind: str,
    dtype: str = "float32",
    *,
    level: Level | None = None,
    quick: bool = False,
    make: Callable[..., dict[str, Any]] = generators.pairs,
    reference_free: bool = False,
    **choices: Any,
) -> Case:
    """Return a case of a loss with one of its sets of constants; `choices` are keywords of `make`."""
    all_tokens, reference_free = choices.get("all_tokens", False), reference_free or choices.get("free", False)
    return Case(
        f"{kind}-{constants}-{dtype}" if kind.startswith("found-") else f"{constants}-{kind}-{dtype}",
        partial(make, loss=loss, constants=LOSSES[loss][1][constants], dtype=dtype, **choices),
        quick=quick,
        conventions={
            "loss": loss,
            **_of_dtype(dtype),
            "rows": _rows(choices),
            "prompt": "shared" if choices.get("shared") else "any",
            **({"nll_tokens": "all" if all_tokens else "completion"} if loss == "orpo" else {}),
            **({} if loss in generators.ALONE else {"reference_free": reference_free}),
        },
        level=level,
    )


def _rows(choices: Mapping[str, Any]) -> str:
    """Return the convention of rows: right-padded with a mask, or left-padded."""
    return "left-padded" if choices.get("padding") == "left" else "mask"


def _of_dtype(dtype: str) -> dict[str, str]:
    """Return the conventions of a dtype; float64 data requires float64 arithmetic."""
    return {"dtype": dtype, **({"arithmetic": "float64"} if dtype == "float64" else {})}


def _cases(loss: str) -> Iterator[Case]:
    sets = LOSSES[loss][1]
    for constants, dtype in product(sets, DTYPES):
        yield _case(loss, constants, "ordinary", dtype, quick=dtype == "float32" or constants == next(iter(sets)))
    first, last = next(iter(sets)), [*sets][-1]
    yield _case(loss, first, "left-padded", padding="left")
    if loss not in generators.ALONE:
        yield _case(loss, first, "no-reference", free=True)
        for dtype in DTYPES:
            yield _case(loss, last, "unrelated", dtype, level="hardening", spread=generators.FAR)
    if loss in SHARED:
        yield _case(loss, SHARED[loss], "shared-prompt", shared=True, quick=loss in CANCELS)
    if loss == "orpo":
        for dtype in DTYPES:
            yield _case(loss, first, "all-tokens", dtype, all_tokens=True, quick=True)
    yield _case(loss, last, "unreadable", level="hardening", make=generators.unreadable_pairs, quick=True)
    if loss in EMPTY:
        yield _case(loss, last, "without-tokens", level="robustness", make=generators.without_tokens, quick=True)
    if loss == "cpo":  # caught n + 1 and max(n, 2) as the number of chosen tokens, and a division by 0
        yield _case(loss, last, "found-one-token", make=generators.one_pair)
        yield _case(loss, last, "found-nothing-chosen", level="robustness", make=generators.nothing_chosen)


def _check(t: Trial) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    shared = _prompts_cancel(inputs)
    want = t.want(PREFERENCE_LOSS, **generators.rounded(inputs))
    limits = t.textbook(PREFERENCE_LOSS, **inputs)
    if shared:  # a subject may score the prompts, which adds terms that cancel
        scored = t.textbook(PREFERENCE_LOSS, **{**inputs, "mask": inputs["mask"] | generators.before(inputs["mask"])})
        limits = {
            "loss": np.maximum(limits["loss"], scored["loss"]),
            "gradient": np.where(inputs["mask"], np.maximum(limits["gradient"], scored["gradient"]), 0.0),
        }
    yield from _compare(t, t.got(PREFERENCE_LOSS, **inputs), want, inputs, limits, shared=shared)


def _prompts_cancel(inputs: Mapping[str, Any]) -> bool:
    """Whether both rows of every pair have the same prompt, in a loss in which its log-probs cancel."""
    prompts = generators.before(inputs["mask"])
    scored = np.where(prompts, inputs["policy"], 0.0)
    same = np.array_equal(prompts[0::2], prompts[1::2]) and np.array_equal(scored[0::2], scored[1::2])
    return inputs["loss"] in CANCELS and same


def _preconditions(t: Draw) -> Iterator[Evidence]:
    inputs = t.inputs
    want = t.want(PREFERENCE_LOSS, **generators.rounded(inputs))
    unit = 2 * UNIT[str(inputs["policy"].dtype)] * want.loss_scale
    order = np.arange(len(inputs["policy"])).reshape(-1, 2)[:, ::-1].reshape(-1)
    names = [name for name in ("policy", "reference", "mask", "attention_mask") if inputs.get(name) is not None]
    swapped = {**inputs, **{name: inputs[name][order] for name in names}}
    shift = abs(t.want(PREFERENCE_LOSS, **generators.rounded(swapped)).loss - want.loss)
    yield t.precondition("change of the loss when the sides are swapped, in 2u·S", shift / unit, ">=", 1e2)
    wide = {**inputs, "mask": inputs["mask"] | generators.before(inputs["mask"])}
    prompts = abs(t.want(PREFERENCE_LOSS, **generators.rounded(wide)).loss - want.loss)
    if _prompts_cancel(inputs):
        yield t.precondition("change of the loss when prompts count, in 2u·S", prompts / unit, "<=", 1.0)
    else:
        yield t.precondition("change of the loss when prompts count, in 2u·S", prompts / unit, ">=", 1e2)
    yield t.precondition("largest |∂loss/∂policy| of the definition", np.abs(want.gradient).max(), ">", 1e-3)
    if inputs["loss"] == "hinge":
        pulled = np.abs(want.gradient[0::2]).max(axis=1) > 0
        yield t.precondition("pairs inside the margin", int(pulled.sum()), ">=", 1)
        yield t.precondition("pairs beyond the margin", int((~pulled).sum()), ">=", 1)
    if inputs["loss"] == "dpop" and inputs["reference"] is not None:
        reference, policy = (np.where(inputs["mask"], inputs[name], 0.0) for name in ("reference", "policy"))
        behind = (reference - policy)[0::2].sum(axis=1)
        yield t.precondition("chosen completions that fell behind", int((behind > 0).sum()), ">=", 1)
        yield t.precondition("chosen completions that gained", int((behind < 0).sum()), ">=", 1)


def _compare(
    t: Trial,
    got: Mapping[str, Any],
    want: Any,
    inputs: Mapping[str, Any],
    limits: Mapping[str, Array],
    *,
    shared: bool = False,
) -> Iterator[Evidence]:
    """Compare loss and gradient; outside the read slots the gradient is 0, or cancels over a shared prompt."""
    dtype = str(inputs["policy"].dtype)
    unit, least = 2 * UNIT[dtype], float(np.finfo(dtype).tiny)
    read = inputs["mask"] | inputs.get("attention_mask", False)
    read &= inputs["mask"] | (np.arange(len(read)) % 2 == 0)[:, None]  # the likelihood reads chosen rows only
    yield from t.agrees(
        f"loss error in 2u·S ({dtype})", got["loss"], want.loss, limits["loss"], scale=unit * want.loss_scale
    )
    gradient = np.asarray(got["gradient"])
    scale = unit * np.where(read, np.maximum(want.gradient_scale, least), 1.0)
    inside = np.where(read, gradient, 0.0)
    yield from t.agrees(f"gradient error in 2u·S ({dtype})", inside, want.gradient, limits["gradient"], scale=scale)
    outside = ~read
    if shared:
        prompts = generators.before(inputs["mask"])
        both = np.where(prompts, gradient, 0.0).reshape(-1, 2, gradient.shape[1]).sum(axis=1)
        room = limits["gradient"].max(axis=1).reshape(-1, 2).sum(axis=1)[:, None] * np.ones(both.shape)
        yield from t.agrees("gradient error of a shared prompt", both, np.zeros(both.shape), room)
        outside &= ~prompts
    yield t.number("largest |gradient| in masked slots", float(np.max(np.abs(gradient[outside]))), "<=")


def _register(loss: str) -> Callable[[Trial], Iterator[Evidence]]:
    return gate(
        f"preference.{loss}.matches-definition",
        level="definition",
        name=f"preference_loss[{loss}]",
        question=f"Are {loss}'s loss and ∂loss/∂policy those of {LOSSES[loss][0]}?",
        why="Swapped sides, a mean for a sum or a β outside the sigmoid still lower the loss, and teach something else.",
        ops=(PREFERENCE_LOSS,),
        cases=tuple(_cases(loss)),
        bounds=BOUNDS,
        requires=_preconditions,
        probes=(Probe("preference_loss", ("loss", "gradient")),),
    )(_check)


for _loss in LOSSES:
    _register(_loss)


def _kto_case(
    name: str, dtype: str = "float32", *, shift: float, level: Level | None = None, quick: bool = False, **choices: Any
) -> Case:
    return Case(
        f"{name}-{dtype}",
        partial(generators.labelled, dtype=dtype, shift=shift, **choices),
        quick=quick,
        conventions={**_of_dtype(dtype), "rows": _rows(choices)},
        level=level,
    )


def _kto_cases() -> Iterator[Case]:
    for dtype, (name, shift) in product(DTYPES, (("ahead", 2.0), ("behind", -2.0))):
        yield _kto_case(f"{name}-ordinary", dtype, shift=shift, quick=True)
    yield _kto_case("left-padded", shift=2.0, padding="left")
    for shift in (-2.0, 2.0):  # libraries without weights
        yield _kto_case(f"unit-weights-{shift:g}", shift=shift, undesirable_weight=1.0)
    yield _kto_case("unit-weights", "float64", shift=2.0, undesirable_weight=1.0)
    yield _kto_case("unreadable", shift=2.0, garbage=True, level="hardening", quick=True)


def _kto_preconditions(t: Draw) -> Iterator[Evidence]:
    want = t.want(KTO_LOSS, **generators.rounded(t.inputs))
    yield t.precondition("|mean| of the mismatched log-ratios", abs(float(t.inputs["mismatched"].mean())), ">=", 0.5)
    yield t.precondition("largest |∂loss/∂policy| of the definition", np.abs(want.gradient).max(), ">", 1e-3)


@gate(
    "preference.kto.matches-definition",
    level="definition",
    name="kto_loss",
    question="Are KTO's loss and gradient λ(1 − σ(±β(lr − z0))), z0 = max(0, mean of mismatched log-ratios), a constant?",
    why="A z0 that is dropped or negative moves the point at which a row counts as a gain.",
    ops=(KTO_LOSS,),
    cases=tuple(_kto_cases()),
    bounds=BOUNDS,
    requires=_kto_preconditions,
    probes=(Probe("kto_loss", ("loss", "gradient")),),
)
def kto_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare rows of both labels, with reference points above and below 0."""
    inputs = dict(t.inputs)
    want = t.want(KTO_LOSS, **generators.rounded(inputs))
    yield from _compare(t, t.got(KTO_LOSS, **inputs), want, inputs, t.textbook(KTO_LOSS, **inputs))


def _enough_tokens(t: Draw) -> Iterator[Evidence]:
    yield t.precondition("tokens", int(t.inputs["mask"].sum()), ">=", 50)


@gate(
    "preference.reference-free",
    level="law",
    name="preference_loss[reference-free]",
    question="Without a reference, is the loss that of a reference of zeros?",
    why="A reference-free run that still subtracts one is held to a model that it was asked to leave.",
    ops=(PREFERENCE_LOSS,),
    cases=tuple(
        _case(loss, constants, f"free-{loss}", quick=True, reference_free=True)
        for loss in ("dpo", "hinge", "ipo")
        for constants in LOSSES[loss][1]
        if constants != "strict"  # without a reference its margins saturate σ
    ),
    bounds=BOUNDS,
    requires=_enough_tokens,
)
def reference_free(t: Trial) -> Iterator[Evidence]:
    """Compare no reference with a reference of zeros; the real one must change the loss."""
    inputs = dict(t.inputs)
    free = {**inputs, "reference": None}
    want, limits = t.want(PREFERENCE_LOSS, **generators.rounded(free)), t.textbook(PREFERENCE_LOSS, **free)
    without = t.got(PREFERENCE_LOSS, **free)
    zeros = t.got(PREFERENCE_LOSS, **{**inputs, "reference": np.zeros_like(inputs["policy"])})
    for name in ("loss", "gradient"):  # both lie within the limits of one definition
        quantity = f"difference of the {name} to that of zeros"
        yield from t.agrees(quantity, without[name], zeros[name], 2.0 * limits[name])
    unit = 2 * UNIT["float32"] * want.loss_scale
    yield from t.agrees("loss error in 2u·S (float32)", without["loss"], want.loss, limits["loss"], scale=unit)
    real = t.got(PREFERENCE_LOSS, **inputs)
    # The loss alone may be equal by chance; the gradients are at least 5e3 units apart.
    moved = np.abs([*np.ravel(real["gradient"] - without["gradient"]), real["loss"] - without["loss"]]).max() / unit
    yield t.negative_control(
        "change of loss or gradient by the reference in 2u·S", moved, ">", 1e2, "a reference must count"
    )
