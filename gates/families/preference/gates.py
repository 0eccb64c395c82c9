"""Do preference losses have the value and the gradient of their definition, and is the right completion chosen?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.preference.op import BEST_OF_N, KTO_LOSS, PREFER, PREFERENCE_LOSS, WINNER_LOSS
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Evidence, Probe, SubjectFaultError, Trial
from gates.registry import gate
from reference.oracle.preference_choice import best_of_n

PAIRS, WIDTH, PROMPT = 16, 20, 5
SCALARS = ("beta", "label_smoothing", "penalty", "margin", "nll", "desirable_weight", "undesirable_weight")
NONE: dict[str, Any] = dict.fromkeys(("label_smoothing", "lengths", "penalty", "margin", "nll"))
ALONE = ("orpo", "simpo", "cpo")  # they have no reference model
EMPTY = ("dpo", "ipo", "dpop", "simpo", "cpo")  # of orpo a completion without tokens has odds of 1 to 0
LOSSES: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "dpo": (
        "−(1−s) log σ(Δ) − s log σ(−Δ), arXiv 2305.18290 eq. 7",
        {
            "plain": {"beta": 0.1, "label_smoothing": 0.0},
            "smoothed": {"beta": 0.3, "label_smoothing": 0.2},
            "strict": {"beta": 2.0, "label_smoothing": 0.0},
        },
    ),
    "hinge": ("max(0, 1 − Δ), arXiv 2305.10425", {"plain": {"beta": 2.0}}),
    "ipo": (
        "(x − 1/(2β))², x summed or averaged over tokens, arXiv 2310.12036 eq. 17",
        {"sum": {"beta": 0.2, "lengths": "sum"}, "mean": {"beta": 0.8, "lengths": "mean"}},
    ),
    "dpop": (
        "−log σ(Δ − βλ·max(0, ref_c − lp_c)), arXiv 2402.13228 eq. 3",
        {"plain": {"beta": 0.3, "penalty": 5.0}},
    ),
    "orpo": (
        "NLL_c − λ log σ(log-odds difference), both of token means, arXiv 2403.07691 eqs. 4 to 7",
        {"plain": {"beta": 0.4}},
    ),
    "simpo": ("−log σ(β(mean_c − mean_r) − γ), arXiv 2405.14734 eq. 6", {"plain": {"beta": 2.0, "margin": 1.2}}),
    "cpo": (
        "−log σ(β(lp_c − lp_r)) + α·NLL of all chosen tokens, arXiv 2401.08417",
        {"plain": {"beta": 0.1, "nll": 0.7}},
    ),
}
BECAUSE = (
    "k·2u·S: log-ratios summed without error, sums of the data wider or compensated; S counts the slope times the argument, "
    "which is rounded once"
)
BOUNDS = {
    **{
        f"{quantity} error in 2u·S ({dtype})": Bound("derived", f"{BECAUSE}; k = {k:g}", k)
        for quantity in ("loss", "gradient")
        for dtype, k in (("float32", 4.0), ("float64", 8.0))
    },
    "largest |gradient| in masked slots": Bound("exact", "prompt and padding are no input of the loss", 0.0),
}


def _rows(rng: np.random.Generator, rows: int, spread: float, dtype: str) -> dict[str, Array]:
    """Return log-probs of prompts and completions, the latter of unequal lengths, and the mask of the completions.

    Prompts hold log-probs like any other token's; what pads a row is NaN.
    """
    lengths = rng.integers(2, WIDTH - PROMPT, rows)
    starts = rng.integers(1, PROMPT, rows)
    starts[0] = 0  # rows at both ends of the array, the only ones that show a lost first or last column
    lengths[-1] = WIDTH - starts[-1]
    lengths[1] = 1
    places = np.arange(WIDTH)
    mask = (places >= starts[:, None]) & (places < (starts + lengths)[:, None])
    padding = places >= (starts + lengths)[:, None]
    policy = -rng.gamma(1.5, 0.8, mask.shape) - 1e-3
    reference = np.minimum(policy + rng.normal(0.0, spread, mask.shape), -1e-3)
    return {
        **{
            name: np.where(padding, np.nan, x).astype(dtype)
            for name, x in (("policy", policy), ("reference", reference))
        },
        "mask": mask,
    }


def _make(
    rng: np.random.Generator, loss: str, constants: Mapping[str, Any], spread: float, dtype: str, *, free: bool
) -> dict[str, Any]:
    inputs: dict[str, Any] = _rows(rng, 2 * PAIRS, spread, dtype)
    if free or loss in ALONE:
        inputs["reference"] = None
    return {**inputs, "loss": loss, **NONE, **constants}


def _cases(loss: str) -> Iterator[Case]:
    for (name, constants), dtype in product(LOSSES[loss][1].items(), ("float32", "float64")):
        conventions = {"loss": loss, "dtype": dtype}
        for size, spread in (("near", 0.3), ("far", 3.0)):
            make = partial(_make, loss=loss, constants=constants, spread=spread, dtype=dtype, free=False)
            yield Case(f"{name}-{size}-{dtype}", make, quick=size == "near", conventions=conventions)
        if loss not in ALONE:
            make = partial(_make, loss=loss, constants=constants, spread=0.3, dtype=dtype, free=True)
            yield Case(f"{name}-reference-free-{dtype}", make, conventions=conventions)
        if loss in EMPTY:
            make = partial(_without_tokens, loss=loss, constants=constants, dtype=dtype)
            yield Case(f"{name}-empty-completions-{dtype}", make, quick=dtype == "float32", conventions=conventions)


def _without_tokens(rng: np.random.Generator, loss: str, constants: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Return pairs of which one has an empty side, another the other: its sum is 0, and so is its mean."""
    inputs = _make(rng, loss, constants, 0.3, dtype, free=False)
    inputs["mask"][[2, 5]] = False
    return inputs


def _rounded(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return arrays.rounded(inputs, SCALARS)


def _check(t: Trial) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    wanted = t.want(PREFERENCE_LOSS, **_rounded(inputs))
    yield from _preconditions(t, inputs, wanted)
    yield from _compare(t, t.got(PREFERENCE_LOSS, **inputs), wanted, inputs)


def _preconditions(t: Trial, inputs: Mapping[str, Any], wanted: Any) -> Iterator[Evidence]:
    unit = 2 * UNIT[str(inputs["policy"].dtype)] * wanted.loss_scale
    order = np.arange(len(inputs["policy"])).reshape(-1, 2)[:, ::-1].reshape(-1)
    swapped = {name: None if inputs[name] is None else inputs[name][order] for name in ("policy", "reference", "mask")}
    shift = abs(t.want(PREFERENCE_LOSS, **_rounded({**inputs, **swapped})).loss - wanted.loss)
    yield t.precondition("change of the loss when the sides are swapped, in 2u·S", shift / unit, ">=", 1e2)
    wide = inputs["mask"] | (np.isfinite(inputs["policy"]))
    prompts = abs(t.want(PREFERENCE_LOSS, **_rounded({**inputs, "mask": wide})).loss - wanted.loss)
    yield t.precondition("change of the loss when prompts count, in 2u·S", prompts / unit, ">=", 1e2)
    yield t.precondition("largest |∂loss/∂policy| of the definition", np.abs(wanted.gradient).max(), ">", 1e-3)
    if inputs["loss"] == "hinge":
        pulled = np.abs(wanted.gradient[0::2]).max(axis=1) > 0
        yield t.precondition("pairs inside the margin", int(pulled.sum()), ">=", 1)
        yield t.precondition("pairs beyond the margin", int((~pulled).sum()), ">=", 1)
    if inputs["loss"] == "dpop" and inputs["reference"] is not None:
        chosen = np.where(inputs["mask"], inputs["reference"] - inputs["policy"], 0.0)[0::2].sum(axis=1)
        yield t.precondition("chosen completions that fell behind", int((chosen > 0).sum()), ">=", 1)
        yield t.precondition("chosen completions that gained", int((chosen < 0).sum()), ">=", 1)


def _compare(t: Trial, got: Mapping[str, Any], wanted: Any, inputs: Mapping[str, Any]) -> Iterator[Evidence]:
    dtype = str(inputs["policy"].dtype)
    unit = 2 * UNIT[dtype]
    yield t.within(f"loss error in 2u·S ({dtype})", got["loss"], wanted.loss, scale=unit * wanted.loss_scale)
    gradient = np.asarray(got["gradient"])
    least = float(np.finfo(dtype).tiny)
    scale = unit * np.where(inputs["mask"], np.maximum(wanted.gradient_scale, least), 1.0)
    masked = np.where(inputs["mask"], gradient, 0.0)
    yield t.within(f"gradient error in 2u·S ({dtype})", masked, wanted.gradient, scale=scale)
    outside = np.abs(gradient[~inputs["mask"]])
    yield t.number("largest |gradient| in masked slots", float(np.max(outside)), "<=")


def _register(loss: str) -> Callable[[Trial], Iterator[Evidence]]:
    return gate(
        f"preference.{loss}.matches-definition",
        name=f"preference_loss[{loss}]",
        question=f"Are {loss}'s loss and ∂loss/∂policy those of {LOSSES[loss][0]}?",
        why="Swapped sides, a mean for a sum or a β outside the sigmoid still lower the loss, and teach something else.",
        ops=(PREFERENCE_LOSS,),
        cases=tuple(_cases(loss)),
        bounds=BOUNDS,
        probes=(Probe("preference_loss", ("loss", "gradient")),),
    )(_check)


for _loss in LOSSES:
    _register(_loss)


def _kto(rng: np.random.Generator, dtype: str, shift: float) -> dict[str, Any]:
    return {
        **_rows(rng, 2 * PAIRS, 0.5, dtype),
        "desirable": np.arange(2 * PAIRS) % 3 > 0,
        "mismatched": rng.normal(shift, 1.0, 12).astype(dtype),
        "beta": 0.4,
        "desirable_weight": 1.0,
        "undesirable_weight": 1.33,
    }


@gate(
    "preference.kto.matches-definition",
    name="kto_loss",
    question="Are KTO's loss and gradient λ(1 − σ(±β(lr − z0))), z0 = max(0, mean of mismatched log-ratios), a constant?",
    why="A z0 that is dropped or negative moves the point at which a row counts as a gain.",
    ops=(KTO_LOSS,),
    cases=tuple(
        Case(f"{name}-{dtype}", partial(_kto, dtype=dtype, shift=shift), quick=True, conventions={"dtype": dtype})
        for dtype, (name, shift) in product(("float32", "float64"), (("ahead", 2.0), ("behind", -2.0)))
    ),
    bounds=BOUNDS,
    probes=(Probe("kto_loss", ("loss", "gradient")),),
)
def kto_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare rows of both labels, with a reference point above and below 0."""
    inputs = dict(t.inputs)
    wanted = t.want(KTO_LOSS, **_rounded(inputs))
    yield t.precondition("|mean| of the mismatched log-ratios", abs(float(inputs["mismatched"].mean())), ">=", 0.5)
    yield t.precondition("largest |∂loss/∂policy| of the definition", np.abs(wanted.gradient).max(), ">", 1e-3)
    yield from _compare(t, t.got(KTO_LOSS, **inputs), wanted, inputs)


@gate(
    "preference.reference-free",
    name="preference_loss[reference-free]",
    question="Without a reference, is the loss that of a reference of zeros, bit for bit?",
    why="A reference-free run that still subtracts one is held to a model that it was told to leave.",
    ops=(PREFERENCE_LOSS,),
    cases=tuple(
        Case(
            f"{loss}-{name}",
            partial(_make, loss=loss, constants=constants, spread=0.3, dtype="float32", free=False),
            quick=True,
            conventions={"loss": loss, "dtype": "float32"},
        )
        for loss in ("dpo", "hinge", "ipo")
        for name, constants in LOSSES[loss][1].items()
    ),
    bounds={
        "elements of loss and gradient that differ": Bound("exact", "lp − 0 is lp", 0.0),
        "loss error in 2u·S (float32)": BOUNDS["loss error in 2u·S (float32)"],
    },
)
def reference_free(t: Trial) -> Iterator[Evidence]:
    """Run without a reference and with zeros; with the real one the loss must move."""
    inputs = dict(t.inputs)
    yield t.precondition("tokens", int(inputs["mask"].sum()), ">=", 50)
    free = t.got(PREFERENCE_LOSS, **{**inputs, "reference": None})
    zeros = t.got(PREFERENCE_LOSS, **{**inputs, "reference": np.zeros_like(inputs["policy"])})
    differing = int(free["loss"] != zeros["loss"]) + int(np.sum(free["gradient"] != zeros["gradient"]))
    yield t.number("elements of loss and gradient that differ", differing, "<=")
    wanted = t.want(PREFERENCE_LOSS, **_rounded({**inputs, "reference": None}))
    unit = 2 * UNIT["float32"] * wanted.loss_scale
    yield t.within("loss error in 2u·S (float32)", free["loss"], wanted.loss, scale=unit)
    held = t.got(PREFERENCE_LOSS, **inputs)
    # The loss alone may come back to its first value; the gradients are 5e3 units apart or more.
    moved = np.abs([*np.ravel(held["gradient"] - free["gradient"]), held["loss"] - free["loss"]]).max() / unit
    yield t.negative_control(
        "change of loss or gradient by the reference in 2u·S", moved, ">", 1e2, "a reference must count"
    )


def _scores(rng: np.random.Generator, kind: str, size: int) -> dict[str, Any]:
    groups = rng.integers(0, 3, (12, size)).astype(np.float64)
    groups[0], groups[1] = 1.0, np.arange(size)
    groups[2] = np.arange(size)[::-1]
    if kind == "unscored":
        groups[3:9][rng.random((6, size)) < 0.4] = np.nan
        groups[3], groups[4] = np.r_[np.nan, np.full(size - 1, -2.0)], np.r_[np.full(size - 1, -2.0), np.nan]
        groups[np.isnan(groups).all(axis=1), -1] = 0.0
    if kind == "infinite":
        groups[5], groups[6, 0] = -np.inf, np.inf
    return {"scores": groups.reshape(-1)}


KINDS = ("finite", "unscored", "infinite")


@gate(
    "preference.online.prefers-the-higher",
    name="prefer",
    question="Is the completion with the higher score chosen, the first of a tie, and none where one is not scored?",
    why="A tie that goes to the second, or to chance, makes a run depend on the order of its rows.",
    ops=(PREFER,),
    cases=tuple(Case(kind, partial(_scores, kind=kind, size=2), quick=True) for kind in KINDS),
    bounds={"signs that differ": Bound("exact", "a comparison has no rounding", 0.0)},
    probes=(Probe("prefer", ("signs",)),),
)
def prefers_the_higher(t: Trial) -> Iterator[Evidence]:
    """Compare all signs, ties among them."""
    scores = t.inputs["scores"]
    wanted = t.want(PREFER, scores=scores)
    pairs = scores.reshape(-1, 2)
    yield t.precondition("ties", int((pairs[:, 0] == pairs[:, 1]).sum()), ">=", 1)
    yield t.precondition("pairs that prefer the second", int((wanted[0::2] < 0).sum()), ">=", 1)
    got = t.got(PREFER, scores=scores)["signs"]
    if got.shape != wanted.shape:
        raise SubjectFaultError("shape", f"signs have shape {got.shape}, must be {wanted.shape}")
    yield t.number("signs that differ", int(np.sum(~(got == wanted))), "<=")


def _many(rng: np.random.Generator, kind: str, size: int) -> dict[str, Any]:
    return {**_scores(rng, kind, size), "group_size": size}


@gate(
    "preference.best-of-n.selects",
    name="best_of_n",
    question="Is the highest score that is not NaN selected, the lowest row of several, and is a group without one an error?",
    why="NumPy's argmax returns the NaN, and max() whatever came first: the run trains on what its reward refused to score.",
    ops=(BEST_OF_N,),
    cases=tuple(
        Case(f"{kind}-{size}", partial(_many, kind=kind, size=size), quick=True) for kind in KINDS for size in (2, 5)
    ),
    bounds={
        "winners that differ": Bound("exact", "a comparison has no rounding", 0.0),
        "calls that chose among NaN alone": Bound("exact", "nothing was scored", 0.0),
    },
)
def best_of_n_selects(t: Trial) -> Iterator[Evidence]:
    """Compare winners; then take every score of one group away."""
    scores, size = t.inputs["scores"], t.inputs["group_size"]
    wanted = t.want(BEST_OF_N, scores=scores, group_size=size)
    groups = scores.reshape(-1, size)
    best = np.nanmax(groups, axis=1, keepdims=True)
    yield t.precondition("groups with several best", int(((groups == best).sum(axis=1) > 1).sum()), ">=", 1)
    yield t.precondition("groups won by another row than the first", int((wanted % size > 0).sum()), ">=", 1)
    got = t.got(BEST_OF_N, scores=scores, group_size=size)["rows"]
    if got.shape != wanted.shape:
        raise SubjectFaultError("shape", f"rows have shape {got.shape}, must be {wanted.shape}")
    yield t.number("winners that differ", int(np.sum(got != wanted)), "<=")
    nothing = np.where(np.arange(scores.size) // size == 1, np.nan, scores)
    outcome = t.call(BEST_OF_N, scores=nothing, group_size=size)
    refused = outcome.kind == "raised" and "NaN" in outcome.error
    yield t.number("calls that chose among NaN alone", int(not refused), "<=", where=outcome.error[:80] or outcome.kind)


def _winners(rng: np.random.Generator) -> dict[str, Any]:
    scores = rng.normal(size=12)
    scores[[1, 7]] = np.nan
    rows = _rows(rng, 12, 0.3, "float32")
    return {"policy": rows["policy"], "mask": rows["mask"], "scores": scores, "group_size": 4, "parts": [5, 1, 6]}


@gate(
    "preference.best-of-n.trains-on-the-winner",
    name="winner_loss",
    question="Is the loss the mean over prompts of the winner's mean −log-prob, and the gradient 0 in every other row?",
    why="Rows that lost and still weigh in make Best-of-N plain fine-tuning on everything that was sampled.",
    ops=(WINNER_LOSS,),
    cases=(Case("uneven-parts", _winners, quick=True, conventions={"dtype": "float32"}),),
    bounds={
        "loss error in 2u·S": Bound(
            "derived", "k·2u·S: a division per term, sums of a part carry their errors; k = 4", 4.0
        ),
        "gradient error in 2u·S": Bound("derived", "two divisions; k = 2", 2.0),
    },
    probes=(Probe("winner_loss", ("loss", "gradient")),),
)
def trains_on_the_winner(t: Trial) -> Iterator[Evidence]:
    """Compare with the definition, written out."""
    x = dict(t.inputs)
    winners = best_of_n(x["scores"], x["group_size"])
    weight = np.zeros(x["mask"].shape)
    for row in winners:
        weight[row] = x["mask"][row] / (len(winners) * x["mask"][row].sum())
    wanted = -float(np.sum((weight * x["policy"].astype(np.float64))[x["mask"]]))
    yield t.precondition("different lengths among winners", len(set(x["mask"][winners].sum(axis=1).tolist())), ">=", 2)
    got = t.got(WINNER_LOSS, **x)
    unit = 2 * UNIT["float32"]
    yield t.within("loss error in 2u·S", got["loss"], wanted, scale=unit * abs(wanted))
    yield t.within("gradient error in 2u·S", got["gradient"], -weight, scale=unit * weight)
