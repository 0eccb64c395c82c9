"""Do filters keep the right tokens, ties included?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import layouts
from gates.families.sampling import cases
from gates.families.sampling.op import FILTERED_LOGPROBS
from gates.families.units import FLOAT64_U
from gates.model import Array, Bound, Case, Draw, Evidence, Level, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import sampling as oracle

BOTH = (  # filters whose result depends on the order
    *("temperature", "top-k", "top-p", "min-p", *cases.PAIRS, "xtc", "xtc-flat", "all"),
    *("min-tokens-top-k", "min-tokens-top-p", "min-tokens-min-p"),
)
SLOW = (
    "temperature",
    *cases.PAIRS,
    "xtc-flat",
    "min-tokens-top-k",
    "raised-top-p",
)  # not in proofs of the second order
ONE = {  # the other filters, with the order of a library that has them
    "none": "hf",
    "peaked": "hf",
    "top-k-beyond": "hf",
    "penalty": "hf",
    "xtc-special": "mlx-lm",
    "presence": "mlx-lm",
    "frequency": "mlx-lm",
    "bias": "mlx-lm",
    "penalties": "mlx-lm",
}
HOSTILE = (("raised", "hf"), ("raised", "mlx-lm"), ("raised-top-p", "hf"), ("raised-top-p", "mlx-lm"))
DOUBLE = (("top-p", "hf"), ("top-p", "mlx-lm"), ("all", "hf"), ("all", "mlx-lm"), ("penalties", "mlx-lm"))


def _make(rng: np.random.Generator, arithmetic: str, filters: str, order: str, dtype: str, size: int) -> dict[str, Any]:
    inputs = cases.inputs(rng, filters, order, dtype, size)
    return {**inputs, "arithmetic": arithmetic, "layouts": filters == "layouts"}


def _gap(rng: np.random.Generator, order: str) -> dict[str, Any]:
    return {**cases.with_gap(rng, order), "arithmetic": "with a gap", "layouts": False}


def _case(filters: str, order: str, dtype: str, level: Level = "definition", *, wide: bool = False) -> Case:
    make = partial(_make, arithmetic="of the data", filters=filters, order=order, dtype=dtype, size=400)
    asked = {"order": order, **cases.least(filters), **(cases.IN_FLOAT64 if wide else {})}
    proof = order == "hf" or filters not in SLOW
    quick = proof and (ONE.get(filters, "hf") == order or filters == "all") and filters not in cases.PAIRS
    return Case(f"{filters}-{order}-{dtype}", make, quick=quick, proof=proof, conventions=asked, level=level)


def _cases() -> Iterator[Case]:
    yield from (_case(filters, order, "float32") for filters, order in product(BOTH, oracle.ORDERS))
    yield from (_case(filters, order, "float32") for filters, order in ONE.items())
    yield from (_case(filters, order, "float64", wide=True) for filters, order in DOUBLE)
    yield from (_case(filters, order, "float32", "robustness") for filters, order in HOSTILE)
    yield _case("layouts", "hf", "float32", "hardening")
    yield _case("raised", "hf", "float64", "robustness", wide=True)
    yield _case("found-two-tokens", "hf", "float32")  # caught a top-p that never counts the last token but one
    for order in oracle.ORDERS:
        yield Case(f"top-p-gap-{order}-{cases.LARGE}", partial(_gap, order=order), conventions={"order": order})
    for filters, order, size in (
        *product(("all",), oracle.ORDERS, (400,)),
        *product(("top-k", "top-p", "all"), oracle.ORDERS, (cases.LARGE,)),
    ):
        make = partial(_make, arithmetic="float64", filters=filters, order=order, dtype="float32", size=size)
        name, proof = (f"{filters}-{order}-{size}", False) if size == cases.LARGE else (f"{filters}-{order}-wide", True)
        yield Case(
            name,
            make,
            quick=proof and order == "hf",
            proof=proof,
            conventions={"order": order},
            declared=cases.IN_FLOAT64,
        )


def _decided(t: Draw, inputs: dict[str, Any], kept: Array, arithmetic: str) -> Iterator[Evidence]:
    """Require that rounding decides no token."""
    if arithmetic == "of the data":
        yield cases.undecided(t, FILTERED_LOGPROBS, inputs)
    elif arithmetic == "float64":
        for nudge in (-cases.NUDGE, cases.NUDGE):
            names = ("top_p", "min_p", "xtc_threshold")
            near = {name: min(inputs[name] * (1 + nudge), 1.0) if inputs[name] < 1 else 1.0 for name in names}
            moved = int(np.sum((t.want(FILTERED_LOGPROBS, **{**inputs, **near}) > -np.inf) != kept))
            yield t.precondition("tokens that the last digits of a threshold decide", moved, "<=", 0)
    else:
        p = np.sort(np.exp(oracle.filtered_logprobs(**{**inputs, "top_p": 1.0})), axis=1)[:, ::-1]
        nearest = np.abs(np.cumsum(p, axis=1) - inputs["top_p"]).min()
        yield t.precondition("distance of top-p from a running sum", nearest, ">=", cases.GAP)


def _preconditions(t: Draw) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    arithmetic, _ = inputs.pop("arithmetic"), inputs.pop("layouts")
    want = t.want(FILTERED_LOGPROBS, **inputs)
    kept = want > -np.inf
    unique = min(np.unique(row).size for row in inputs["logits"])
    yield t.precondition("distinct logits in a row", unique, ">=", inputs["logits"].shape[1])
    yield from _decided(t, inputs, kept, arithmetic)
    plain = t.want(FILTERED_LOGPROBS, **cases.OFF, order=inputs["order"], logits=inputs["logits"])
    removing = [k for k in ("top_k", "top_p", "min_p", "xtc_probability") if inputs[k] != cases.OFF[k]]
    if removing and not inputs["top_k"] > inputs["logits"].shape[1]:
        yield t.precondition("tokens that the filters remove", int(np.sum(~kept)), ">=", 1)
        yield from _each_decides(t, inputs, kept)
    elif any(inputs[k] != cases.OFF[k] for k in ("temperature", "repetition_penalty")):
        yield t.precondition("largest change of a log-prob", np.max(np.abs(want - plain)), ">=", 0.1)
    for name in sorted(inputs.keys() & cases.ABSENT.keys()):
        without = t.want(FILTERED_LOGPROBS, **{**inputs, name: cases.ABSENT[name]})
        acts = name != "min_tokens_to_keep" or inputs["order"] == "hf" or inputs["min_p"] > 0
        yield t.precondition(f"log-probs that {name} changes", int(np.sum(without != want)), ">=", int(acts))
    if inputs["xtc_coin"] is not None:
        without = t.want(FILTERED_LOGPROBS, **{**inputs, "xtc_probability": 0.0, "xtc_coin": None}) > -np.inf
        differs = np.any(without != kept, axis=1)
        yield t.precondition("rows on which XTC acts", int(differs.sum()), ">=", 1)
        yield t.precondition("rows on which XTC does not act", int((~differs).sum()), ">=", 1)


def _each_decides(t: Draw, inputs: dict[str, Any], kept: Array) -> Iterator[Evidence]:
    """Require of two active filters that each affects the kept tokens."""
    active = [name for name in ("top_k", "top_p", "min_p") if inputs[name] != cases.OFF[name]]
    if len(active) != 2:
        return
    for name in active:
        without = t.want(FILTERED_LOGPROBS, **{**inputs, name: cases.OFF[name]}) > -np.inf
        yield t.precondition(
            f"tokens that {name} decides beside the other filter", int(np.sum(without != kept)), ">=", 1
        )


@gate(
    "sampling.filters.keep-the-right-tokens",
    level="definition",
    name="filtered_logprobs",
    question="Do penalty, temperature, top-k, top-p, min-p and XTC keep the tokens of the definition, in both orders?",
    why="The two orders keep different sets: a library that mixes them samples from a distribution nobody recorded.",
    ops=(FILTERED_LOGPROBS,),
    cases=tuple(_cases()),
    bounds=cases.QUANTITIES,
    requires=_preconditions,
    probes=(Probe("filtered_logprobs", ("logprobs",)),),
)
def filters_keep_the_right_tokens(t: Trial) -> Iterator[Evidence]:
    """Compare the kept sets exactly on rows without ties, and the log-probs in textbook limits.

    With float64 logits or declared float64 arithmetic full precision is claimed too.
    """
    inputs = dict(t.inputs)
    arithmetic, layouts_too = inputs.pop("arithmetic"), inputs.pop("layouts")
    want = t.want(FILTERED_LOGPROBS, **inputs)
    limits = _limits(t, inputs, want, arithmetic)
    wide = arithmetic == "float64" or inputs["logits"].dtype == np.float64
    scale = 2 * FLOAT64_U * cases.scale(inputs, want) if wide else None
    got = t.got(FILTERED_LOGPROBS, **inputs)["logprobs"]
    yield from _compare(t, got, want, limits, scale, "")
    if layouts_too:
        for where, outputs in layouts.values(t, FILTERED_LOGPROBS, inputs, ("logits",)):
            yield from _compare(t, outputs["logprobs"], want, limits, scale, where)


def _limits(t: Trial, inputs: dict[str, Any], want: Array, arithmetic: str) -> Array | None:
    """Return textbook limits (B, V); for long rows those of the kept tokens, or None."""
    if arithmetic == "of the data":
        return t.textbook(FILTERED_LOGPROBS, **inputs)["logprobs"]
    if arithmetic == "float64":
        return None
    limits = np.zeros(want.shape)
    for index, logits in enumerate(inputs["logits"]):
        kept = want[index] > -np.inf
        few = {**cases.OFF, "order": inputs["order"], "logits": logits[None, kept]}
        limits[index, kept] = t.textbook(FILTERED_LOGPROBS, **few)["logprobs"][0]
    return limits


def _compare(
    t: Trial, got: Array, want: Array, limits: Array | None, scale: Array | None, where: str
) -> Iterator[Evidence]:
    wrong = (got > -np.inf) != (want > -np.inf) if got.shape == want.shape else np.ones(1)
    yield t.number("tokens wrongly kept or removed", int(wrong.sum()), "<=", where=where)
    if np.any(wrong):
        return
    kept, quantity = want > -np.inf, "log-prob error in 2u·S (float64)"
    if limits is not None:
        unit = None if scale is None else scale[kept]
        yield from t.agrees(quantity, got[kept], want[kept], limits[kept], scale=unit, where=where)
    elif scale is not None:
        yield t.within(quantity, got[kept], want[kept], scale=scale[kept], where=where)


def _tied_cases() -> Iterator[Case]:
    for filters, order, ties in product(cases.TIED, oracle.ORDERS, ("any", *oracle.TIES)):
        if (filters == "both" and order == "mlx-lm") or (ties == "any" and filters not in {"top-k", "top-p"}):
            continue  # after top-p, top-k acts as if alone; an unknown choice of ties changes the mass of top-p
        make = partial(cases.tied, filters=filters, order=order, ties=ties)
        least = {name: value for name, value in cases.TIED[filters].items() if name in cases.ABSENT}
        promise: dict[str, Any] = {} if ties == "any" else {"declared": {"ties": ties}, "level": "rule"}
        asked = {"order": order, **least}
        quick = ties == "any" or (order == "hf" and filters != "both")
        yield Case(f"{filters}-of-600-{order}-{ties}", make, quick=quick, proof=True, conventions=asked, **promise)


def _kept(t: Draw, ties: str) -> Array:
    return np.asarray(t.want(FILTERED_LOGPROBS, **{**t.inputs, "ties": ties}) > -np.inf)


def _kept_and_tied(t: Draw) -> tuple[Array, Array]:
    """Return the tokens kept by the promised rule, and the tokens at the threshold, both (B, V)."""
    exact, logits = _kept(t, t.inputs.get("ties", "lower-id")), t.inputs["logits"]
    return exact, logits == np.min(np.where(exact, logits, np.inf), axis=1, keepdims=True)


def _many_tied(t: Draw) -> Iterator[Evidence]:
    exact, tied = _kept_and_tied(t)
    yield t.precondition("fewest tokens at a threshold", int(tied.sum(axis=1).min()), ">=", 20)
    decided = int(np.sum(_kept(t, "all") & ~_kept(t, "lower-id")))
    yield t.precondition("tied tokens that the promise decides", decided, ">=", 20)
    yield from _each_decides(t, dict(t.inputs), exact)
    yield cases.undecided(t, FILTERED_LOGPROBS, t.inputs)


@gate(
    "sampling.filters.ties",
    level="definition",
    name="filtered_logprobs[ties]",
    question="With ties at the threshold, is every token that is not tied there kept or removed rightly, and are those "
    "that are kept as the subject promises?",
    why="bfloat16 logits put a median of 207 tokens on the threshold; a token that a library draws must not score −inf.",
    ops=(FILTERED_LOGPROBS,),
    cases=tuple(_tied_cases()),
    bounds={
        "tokens off the threshold wrongly kept or removed": Bound(
            "exact", "the kept set lies between the tokens above the threshold's value and those at it or above", 0
        ),
        "tied tokens not kept in the order of their ids": Bound(
            "exact", "the subject's own promise: among equals the lower id first", 0
        ),
        "tied tokens not kept as promised": Bound(
            "exact", "the subject's own promise: all that are tied, or those that the named library keeps", 0
        ),
    },
    requires=_many_tied,
)
def filters_ties(t: Trial) -> Iterator[Evidence]:
    """Require a kept set between the strict and the inclusive one, or exactly the promised one."""
    promised = t.inputs.get("ties")
    exact, tied = _kept_and_tied(t)
    got = t.got(FILTERED_LOGPROBS, **t.inputs)["logprobs"] > -np.inf
    wrong = (got != exact) if got.shape == exact.shape else np.ones_like(tied)
    yield t.number("tokens off the threshold wrongly kept or removed", int(np.sum(wrong & ~tied)), "<=")
    if promised == "lower-id":
        yield t.number("tied tokens not kept in the order of their ids", int(np.sum(wrong & tied)), "<=")
    elif promised:
        yield t.number("tied tokens not kept as promised", int(np.sum(wrong & tied)), "<=")
