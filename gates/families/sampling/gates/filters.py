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
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import sampling as oracle


def _cases() -> Iterator[Case]:
    kept_sets = [filters for filters in cases.FILTERS if filters not in cases.CERTAIN]
    for filters, order, dtype in product(kept_sets, oracle.ORDERS, ("float32", "float64")):
        make = partial(cases.inputs, filters=filters, order=order, dtype=dtype, size=400)
        conventions = {"order": order, **cases.least(filters)}
        yield Case(f"{filters}-{order}-{dtype}", make, quick=dtype == "float32", conventions=conventions)
    for filters, order in product(("top-k", "top-p", "all"), oracle.ORDERS):
        make = partial(cases.inputs, filters=filters, order=order, dtype="float32", size=cases.LARGE)
        yield Case(f"{filters}-{order}-{cases.LARGE}", make, conventions={"order": order})


@gate(
    "sampling.filters.keep-the-right-tokens",
    name="filtered_logprobs",
    question="Do penalty, temperature, top-k, top-p, min-p and XTC keep the tokens of the definition, in both orders?",
    why="The two orders keep different sets: a library that mixes them samples from a distribution nobody recorded.",
    ops=(FILTERED_LOGPROBS,),
    cases=tuple(_cases()),
    bounds=cases.QUANTITIES,
    probes=(Probe("filtered_logprobs", ("logprobs",)),),
)
def filters_keep_the_right_tokens(t: Trial) -> Iterator[Evidence]:
    """Compare the kept sets exactly and the renormalised log-probs in units of their rounding, on tie-free rows."""
    inputs = dict(t.inputs)
    wanted = t.want(FILTERED_LOGPROBS, **inputs)
    yield from _preconditions(t, inputs, wanted)
    scale = 2 * FLOAT64_U * cases.scale(inputs, wanted)
    got = t.got(FILTERED_LOGPROBS, **inputs)["logprobs"]
    yield from _compare(t, got, wanted, scale, "")
    for where, other in layouts.values(t, FILTERED_LOGPROBS, inputs, ("logits",)):
        yield from _compare(t, other["logprobs"], wanted, scale, where)


def _compare(t: Trial, got: Array, wanted: Array, scale: Array, where: str) -> Iterator[Evidence]:
    wrong = (got > -np.inf) != (wanted > -np.inf) if got.shape == wanted.shape else np.ones(1)
    yield t.number("tokens wrongly kept or removed", int(wrong.sum()), "<=", where=where)
    if not np.any(wrong):
        kept = wanted > -np.inf
        yield t.within("log-prob error in 2u·S (float64)", got[kept], wanted[kept], scale=scale[kept], where=where)


def _preconditions(t: Trial, inputs: dict[str, Any], wanted: Array) -> Iterator[Evidence]:
    kept = wanted > -np.inf
    unique = min(np.unique(row).size for row in inputs["logits"])
    yield t.precondition("distinct logits in a row", unique, ">=", inputs["logits"].shape[1])
    for nudge in (-cases.NUDGE, cases.NUDGE):
        names = ("top_p", "min_p", "xtc_threshold")
        near = {name: min(inputs[name] * (1 + nudge), 1.0) if inputs[name] < 1 else 1.0 for name in names}
        moved = int(np.sum((t.want(FILTERED_LOGPROBS, **{**inputs, **near}) > -np.inf) != kept))
        yield t.precondition("tokens that the last digits of a threshold decide", moved, "<=", 0)
    plain = t.want(FILTERED_LOGPROBS, **cases.OFF, order=inputs["order"], logits=inputs["logits"])
    removing = [k for k in ("top_k", "top_p", "min_p", "xtc_probability") if inputs[k] != cases.OFF[k]]
    if removing and not inputs["top_k"] > inputs["logits"].shape[1]:
        yield t.precondition("tokens that the filters remove", int(np.sum(~kept)), ">=", 1)
        yield from _each_decides(t, inputs, kept)
    elif any(inputs[k] != cases.OFF[k] for k in ("temperature", "repetition_penalty")):
        yield t.precondition("largest change of a log-prob", np.max(np.abs(wanted - plain)), ">=", 0.1)
    for name in sorted(inputs.keys() & cases.ABSENT.keys()):
        without = t.want(FILTERED_LOGPROBS, **{**inputs, name: cases.ABSENT[name]})
        acts = name != "min_tokens_to_keep" or inputs["order"] == "hf" or inputs["min_p"] > 0
        yield t.precondition(f"log-probs that {name} changes", int(np.sum(without != wanted)), ">=", int(acts))
    if inputs["xtc_coin"] is not None:
        without = t.want(FILTERED_LOGPROBS, **{**inputs, "xtc_probability": 0.0, "xtc_coin": None}) > -np.inf
        differs = np.any(without != kept, axis=1)
        yield t.precondition("rows on which XTC acts", int(differs.sum()), ">=", 1)
        yield t.precondition("rows on which XTC does not act", int((~differs).sum()), ">=", 1)


def _each_decides(t: Trial, inputs: dict[str, Any], kept: Array) -> Iterator[Evidence]:
    """Where two filters act together, either one is seen: without it other tokens are kept."""
    active = [name for name in ("top_k", "top_p", "min_p") if inputs[name] != cases.OFF[name]]
    if len(active) != 2:
        return
    for name in active:
        without = t.want(FILTERED_LOGPROBS, **{**inputs, name: cases.OFF[name]}) > -np.inf
        yield t.precondition(
            f"tokens that {name} decides beside the other filter", int(np.sum(without != kept)), ">=", 1
        )


def _tied_cases() -> Iterator[Case]:
    for filters, order, ties in product(cases.TIED, oracle.ORDERS, ("any", *oracle.TIES)):
        if (filters == "both" and order == "mlx-lm") or (ties == "any" and filters not in {"top-k", "top-p"}):
            continue  # top-k after top-p keeps what it keeps alone; without a promise top-p has another whole
        make = partial(cases.tied, filters=filters, order=order, ties=ties)
        least = {name: value for name, value in cases.TIED[filters].items() if name in cases.ABSENT}
        promise = {} if ties == "any" else {"ties": ties, **least}
        yield Case(f"{filters}-{order}-{ties}", make, quick=True, conventions={"order": order, **promise})


@gate(
    "sampling.filters.ties",
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
)
def filters_ties(t: Trial) -> Iterator[Evidence]:
    """Hold the kept set between the strict and the inclusive one, and to the exact one where that is promised."""
    inputs = dict(t.inputs)
    promised = inputs.get("ties")
    exact, lower, every = (
        t.want(FILTERED_LOGPROBS, **{**inputs, "ties": ties}) > -np.inf
        for ties in (promised or "lower-id", "lower-id", "all")
    )
    logits = inputs["logits"]
    threshold = np.min(np.where(exact, logits, np.inf), axis=1, keepdims=True)
    tied = logits == threshold
    yield t.precondition("fewest tokens at a threshold", int(tied.sum(axis=1).min()), ">=", 20)
    yield t.precondition("tied tokens that the promise decides", int(np.sum(every & ~lower)), ">=", 20)
    yield from _each_decides(t, inputs, exact)
    got = t.got(FILTERED_LOGPROBS, **inputs)["logprobs"] > -np.inf
    wrong = (got != exact) if got.shape == exact.shape else np.ones_like(tied)
    yield t.number("tokens off the threshold wrongly kept or removed", int(np.sum(wrong & ~tied)), "<=")
    if promised == "lower-id":
        yield t.number("tied tokens not kept in the order of their ids", int(np.sum(wrong & tied)), "<=")
    elif promised:
        yield t.number("tied tokens not kept as promised", int(np.sum(wrong & tied)), "<=")
