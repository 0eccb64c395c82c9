"""Do filters keep the tokens that they promise, and does a uniform draw the token that its interval names?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import layouts
from gates.families.sampling.op import FILTERED_LOGPROBS, SAMPLE_TOKENS
from gates.families.units import FLOAT64_U
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import sampling as oracle

LARGE = 151_936
OFF: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.125,
    "xtc_coin": None,
    "repetition_penalty": 1.0,
    "history": None,
}
XTC: dict[str, Any] = {"xtc_probability": 0.5, "xtc_threshold": 0.03125}
FILTERS: dict[str, dict[str, Any]] = {  # every number is exact in float32
    "none": {},
    "peaked": {},  # running sums are 1 long before the last token, which top-p at 1 keeps all the same
    "raised": {},  # without subtracting the largest logit, exp overflows
    "raised-top-p": {"top_p": 0.875},  # and so do the masses that a filter adds up
    "temperature": {"temperature": 1.75},
    "top-k": {"top_k": 20, "temperature": 1.5},
    "top-k-one": {"top_k": 1},
    "top-k-beyond": {"top_k": 1000},  # more than there are tokens
    "top-p": {"top_p": 0.875, "temperature": 1.5},
    "top-p-zero": {"top_p": 0.0},
    "min-p": {"min_p": 0.0625, "temperature": 0.75},
    "min-p-one": {"min_p": 1.0},  # the likeliest token is at the bound, and stays
    "top-k-top-p": {"top_k": 20, "top_p": 0.75, "temperature": 1.5},  # the filters that most samplers have
    "top-k-min-p": {"top_k": 20, "min_p": 0.125, "temperature": 1.5},
    "top-p-min-p": {"top_p": 0.96875, "min_p": 0.0625, "temperature": 1.5},
    "xtc": XTC,
    "xtc-flat": XTC,  # rows in which XTC acts and no token reaches the threshold: none goes
    "penalty": {"repetition_penalty": 1.375},
    "all": {"top_k": 30, "top_p": 0.9375, "min_p": 0.015625, **XTC, "repetition_penalty": 1.25, "temperature": 1.25},
    "min-tokens-top-k": {"top_k": 5, "min_tokens_to_keep": 12, "temperature": 1.5},
    "min-tokens-top-p": {"top_p": 0.25, "min_tokens_to_keep": 12, "temperature": 1.5},
    "min-tokens-min-p": {"min_p": 0.75, "min_tokens_to_keep": 12, "temperature": 1.5},
    "xtc-special": {**XTC, "xtc_special_tokens": None},  # drawn below: the likeliest tokens of the rows
    "presence": {"presence_penalty": 1.375, "generated": None},
    "frequency": {"frequency_penalty": 0.625, "generated": None},
    "bias": {"logit_bias": None, "repetition_penalty": 1.375},  # which is added before the penalty looks at signs
    "penalties": {
        "presence_penalty": 0.75,
        "frequency_penalty": -0.375,
        "generated": None,
        "logit_bias": None,
        "repetition_penalty": 1.25,
        "temperature": 1.25,
        "top_k": 60,
    },
}
ABSENT = {  # what an input that is not given means
    "min_tokens_to_keep": 1,
    "xtc_special_tokens": None,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": None,
}
CERTAIN = ("top-p-zero", "min-p-one", "top-k-one")  # one token is left, whose log-prob is 0: only a draw tells it
DRAWN = ("none", "top-k", "top-p", *CERTAIN, "all", "min-tokens-top-k", "xtc-special", "penalties")
PAIRS = ("top-k-top-p", "top-k-min-p", "top-p-min-p")
NUDGE = 1e-9  # relative: a threshold this close to a token's mass would judge rounding, not the filter
EDGE = 1e-11  # relative: a running sum in float64 over 151,936 tokens is that good, whatever its order
QUANTITIES = {
    "tokens wrongly kept or removed": Bound("exact", "no threshold lies within a rounding of these tokens", 0),
    "log-prob error in 2u·S (float64)": Bound(
        "derived", "k·2u·S with S = (M − x)/min(τ, 1) + log Σ + max(1, −lp of the likeliest); k = 8", 8.0
    ),
}


def _distinct(rng: np.random.Generator, rows: int, size: int, dtype: str) -> Array:
    """Return logits without ties: permuted steps of which the least is far above a rounding."""
    if size == LARGE:  # 20 nats, e-fold in 7,600 tokens; the steps grow and shrink by half
        steps = np.cumsum(rng.uniform(0.5, 1.5, (rows, size)), axis=1) * (20.0 / size)
        steps[:, -50:] += np.linspace(0.0, 8.0, 50)  # and a head of likely ones
    else:  # the likeliest ones as far apart as in text
        steps = np.sort(rng.normal(0.0, 3.0, (rows, size)), axis=1) + np.arange(size) * 1e-4
    return rng.permuted(steps - steps.mean(axis=1, keepdims=True), axis=1).astype(dtype)


def _inputs(rng: np.random.Generator, filters: str, order: str, dtype: str, size: int) -> dict[str, Any]:
    rows = 8 if size < LARGE else 2
    chosen = {**OFF, **FILTERS[filters], "order": order, "logits": _distinct(rng, rows, size, dtype)}
    if filters in PAIRS:  # flat rows, in which the first filter decides, and peaked ones, in which the second does
        chosen["logits"] *= np.where(np.arange(rows) % 2 == 0, 0.25, 2.0).astype(dtype)[:, None]
    if filters == "peaked":
        chosen["logits"] *= 3
    if filters == "xtc-flat":
        chosen["logits"] *= np.where(np.arange(rows) % 4 == 0, 0.125, 1.0).astype(dtype)[:, None]
    if filters in {"raised", "raised-top-p"}:
        chosen["logits"] += 128 if dtype == "float32" else 1024
    if chosen["xtc_probability"]:
        chosen["xtc_coin"] = np.where(np.arange(rows) % 2 == 0, 0.25, 0.75) + rng.uniform(-0.2, 0.2, rows)
    if chosen["repetition_penalty"] != 1.0:
        likely = np.argsort(-chosen["logits"], axis=1)[:, :6]
        unlikely = rng.integers(0, size, (rows, 10))
        chosen["history"] = np.concatenate([unlikely, np.full((rows, 3), -1), likely], axis=1).astype(np.int64)
    if "xtc_special_tokens" in chosen:
        chosen["xtc_special_tokens"] = np.unique(np.argmax(chosen["logits"], axis=1)[: rows // 2])
    if "generated" in chosen:
        likely = np.argsort(-chosen["logits"], axis=1)[:, :6]
        ids = np.concatenate([likely[:, [0, 1, 1, 2, 2, 2, 3]], rng.integers(0, size, (rows, 9))], axis=1)
        chosen["generated"] = np.concatenate([np.full((rows, 2), -1), rng.permuted(ids, axis=1)], axis=1).astype(
            np.int64
        )
    if "logit_bias" in chosen:
        chosen["logit_bias"] = rng.normal(0.0, 2.0, size)
        chosen["logit_bias"][rng.integers(0, size, 5)] = -np.inf
    return chosen


def _least(filters: str) -> dict[str, Any]:
    """Return the declared choice that a case with these filters needs beside its order."""
    return {name: FILTERS[filters][name] for name in ("min_tokens_to_keep",) if name in FILTERS[filters]}


def _cases() -> Iterator[Case]:
    kept_sets = [filters for filters in FILTERS if filters not in CERTAIN]
    for filters, order, dtype in product(kept_sets, oracle.ORDERS, ("float32", "float64")):
        make = partial(_inputs, filters=filters, order=order, dtype=dtype, size=400)
        conventions = {"order": order, **_least(filters)}
        yield Case(f"{filters}-{order}-{dtype}", make, quick=dtype == "float32", conventions=conventions)
    for filters, order in product(("top-k", "top-p", "all"), oracle.ORDERS):
        make = partial(_inputs, filters=filters, order=order, dtype="float32", size=LARGE)
        yield Case(f"{filters}-{order}-{LARGE}", make, conventions={"order": order})


@gate(
    "sampling.filters.keep-the-right-tokens",
    name="filtered_logprobs",
    question="Do penalty, temperature, top-k, top-p, min-p and XTC keep the tokens of the definition, in both orders?",
    why="The two orders keep different sets: a library that mixes them samples from a distribution nobody recorded.",
    ops=(FILTERED_LOGPROBS,),
    cases=tuple(_cases()),
    bounds=QUANTITIES,
    probes=(Probe("filtered_logprobs", ("logprobs",)),),
)
def filters_keep_the_right_tokens(t: Trial) -> Iterator[Evidence]:
    """Compare the kept sets exactly and the renormalised log-probs in units of their rounding, on tie-free rows."""
    inputs = dict(t.inputs)
    wanted = t.want(FILTERED_LOGPROBS, **inputs)
    yield from _preconditions(t, inputs, wanted)
    scale = 2 * FLOAT64_U * _scale(inputs, wanted)
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
    for nudge in (-NUDGE, NUDGE):
        names = ("top_p", "min_p", "xtc_threshold")
        near = {name: min(inputs[name] * (1 + nudge), 1.0) if inputs[name] < 1 else 1.0 for name in names}
        moved = int(np.sum((t.want(FILTERED_LOGPROBS, **{**inputs, **near}) > -np.inf) != kept))
        yield t.precondition("tokens that the last digits of a threshold decide", moved, "<=", 0)
    plain = t.want(FILTERED_LOGPROBS, **OFF, order=inputs["order"], logits=inputs["logits"])
    removing = [k for k in ("top_k", "top_p", "min_p", "xtc_probability") if inputs[k] != OFF[k]]
    if removing and not inputs["top_k"] > inputs["logits"].shape[1]:
        yield t.precondition("tokens that the filters remove", int(np.sum(~kept)), ">=", 1)
        yield from _each_decides(t, inputs, kept)
    elif any(inputs[k] != OFF[k] for k in ("temperature", "repetition_penalty")):
        yield t.precondition("largest change of a log-prob", np.max(np.abs(wanted - plain)), ">=", 0.1)
    for name in sorted(inputs.keys() & ABSENT.keys()):
        without = t.want(FILTERED_LOGPROBS, **{**inputs, name: ABSENT[name]})
        acts = name != "min_tokens_to_keep" or inputs["order"] == "hf" or inputs["min_p"] > 0
        yield t.precondition(f"log-probs that {name} changes", int(np.sum(without != wanted)), ">=", int(acts))
    if inputs["xtc_coin"] is not None:
        without = t.want(FILTERED_LOGPROBS, **{**inputs, "xtc_probability": 0.0, "xtc_coin": None}) > -np.inf
        differs = np.any(without != kept, axis=1)
        yield t.precondition("rows on which XTC acts", int(differs.sum()), ">=", 1)
        yield t.precondition("rows on which XTC does not act", int((~differs).sum()), ">=", 1)


def _each_decides(t: Trial, inputs: dict[str, Any], kept: Array) -> Iterator[Evidence]:
    """Where two filters act together, either one is seen: without it other tokens are kept."""
    active = [name for name in ("top_k", "top_p", "min_p") if inputs[name] != OFF[name]]
    if len(active) != 2:
        return
    for name in active:
        without = t.want(FILTERED_LOGPROBS, **{**inputs, name: OFF[name]}) > -np.inf
        yield t.precondition(
            f"tokens that {name} decides beside the other filter", int(np.sum(without != kept)), ">=", 1
        )


def _scale(inputs: dict[str, Any], wanted: Array) -> Array:
    likeliest = wanted.max(axis=-1, keepdims=True)
    logits = np.where(inputs["logits"] > -np.inf, inputs["logits"], 0.0).astype(np.float64)
    if inputs.get("logit_bias") is not None:
        logits = np.abs(logits) + np.where(inputs["logit_bias"] > -np.inf, np.abs(inputs["logit_bias"]), 0.0)
    if "generated" in inputs:  # no token is there more often
        most = inputs["generated"].shape[1]
        logits = (
            np.abs(logits) + abs(inputs.get("presence_penalty", 0.0)) + most * abs(inputs.get("frequency_penalty", 0.0))
        )
    spread = np.max(np.abs(logits), axis=-1, keepdims=True) * max(inputs["repetition_penalty"], 1.0)
    far = (spread + np.abs(logits) * inputs["repetition_penalty"]) / min(inputs["temperature"] or 1.0, 1.0)
    return np.asarray(far + np.log(logits.shape[-1]) + np.maximum(1.0, -likeliest))


TIED: dict[str, dict[str, Any]] = {
    "top-k": {"top_k": 40},
    "top-p": {"top_p": 0.75},
    "min-tokens": {"min_p": 0.75, "min_tokens_to_keep": 90},
    "both": {"top_k": 90, "top_p": 0.75},  # what top-k keeps of the tied is the whole of which top-p keeps a share
}


def _tied(rng: np.random.Generator, filters: str, order: str, ties: str) -> dict[str, Any]:
    steps = np.round(rng.normal(0.0, 2.0, (6, 2000)))  # hundreds share a value
    logits = np.minimum(steps, 9.0).astype(np.float32)  # one token at 11 would be three quarters of its row alone
    return {**OFF, **TIED[filters], "order": order, "logits": logits, **({} if ties == "any" else {"ties": ties})}


def _tied_cases() -> Iterator[Case]:
    for filters, order, ties in product(TIED, oracle.ORDERS, ("any", *oracle.TIES)):
        if (filters == "both" and order == "mlx-lm") or (ties == "any" and filters not in {"top-k", "top-p"}):
            continue  # top-k after top-p keeps what it keeps alone; without a promise top-p has another whole
        make = partial(_tied, filters=filters, order=order, ties=ties)
        least = {name: value for name, value in TIED[filters].items() if name in ABSENT}
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


def _draw_inputs(rng: np.random.Generator, filters: str, order: str, size: int) -> dict[str, Any]:
    ends = np.array([0.0, 2.0**-53, 0.5, 0.99, 0.9999, 0.99999, 0.999999, 1 - 2.0**-53])
    uniforms = np.concatenate([ends, rng.random(56 if size < LARGE else 4)])
    chosen = _inputs(rng, filters, order, "float32", size)
    rows = np.resize(np.arange(len(chosen["logits"])), uniforms.size)
    for name in {"logits", "xtc_coin", "history", "generated"} & chosen.keys():
        chosen[name] = chosen[name] if chosen[name] is None else chosen[name][rows]
    chosen["logits"] = chosen["logits"].copy()
    chosen["logits"][:, :3] = -np.inf  # u = 0 must not pick token 0
    return {**chosen, "uniforms": uniforms}


def _draw_tied(rng: np.random.Generator, **filters: Any) -> dict[str, Any]:
    chosen = _tied(rng, "top-k", "hf", "all")
    uniforms = rng.random(48)
    logits = np.resize(chosen["logits"], (uniforms.size, chosen["logits"].shape[1]))
    logits[:, 0], logits[:, 5:15] = -np.inf, 10.0  # ten tokens are the likeliest
    return {**chosen, **filters, "logits": logits, "uniforms": uniforms}


@gate(
    "sampling.draw.inverse-cdf",
    name="sample_tokens",
    question="Is the token the least k with C_k > u·C_V in float64, and its log-prob that of the filtered row?",
    why="A float32 running sum ends at 0.99999 for 152k tokens; ≥ instead of > picks a filtered token 0 at u = 0.",
    ops=(SAMPLE_TOKENS,),
    cases=(
        *(
            Case(
                f"{filters}-{order}",
                partial(_draw_inputs, filters=filters, order=order, size=400),
                quick=True,
                conventions={"order": order, **_least(filters)},
            )
            for filters, order in product(DRAWN, oracle.ORDERS)
        ),
        Case("tied-hf", _draw_tied, quick=True, conventions={"order": "hf", "ties": "all"}),
        Case(
            "tied-min-p-hf",
            partial(_draw_tied, top_k=0, min_p=1.0, ties="lower-id"),  # all tokens at the bound stay
            quick=True,
            conventions={"order": "hf", "ties": "lower-id"},
        ),
        Case(f"none-hf-{LARGE}", partial(_draw_inputs, filters="none", order="hf", size=LARGE), quick=True),
        Case(f"top-p-hf-{LARGE}", partial(_draw_inputs, filters="top-p", order="hf", size=LARGE)),
    ),
    bounds={
        **QUANTITIES,
        "tokens that are not their uniform's": Bound(
            "exact", "the token of u, or of u·(1 ± 1e-11) beside a boundary: a float64 sum is that good", 0
        ),
    },
    probes=(Probe("sample_tokens", ("logprobs",)),),
)
def draw_inverse_cdf(t: Trial) -> Iterator[Evidence]:
    """Look up every uniform in the oracle's intervals, u = 0 and u just below 1 among them."""
    inputs = dict(t.inputs)
    uniforms = inputs.pop("uniforms")
    filtered = t.want(FILTERED_LOGPROBS, **inputs)
    near = [np.clip(uniforms * (1 + side), 0.0, 1 - 2.0**-53) for side in (-EDGE, 0.0, EDGE)]
    admissible = np.stack([oracle.draw(filtered, u) for u in near])
    edges = int(np.sum(admissible[0] != admissible[2]))
    yield t.precondition("draws beside a boundary", edges, "<=", max(1, uniforms.size // 100))
    yield t.precondition("distinct tokens", np.unique(admissible[1]).size, ">=", 4)
    yield t.precondition(
        "rows whose first token cannot be drawn", int(np.sum(filtered[:, 0] == -np.inf)), ">=", len(filtered)
    )
    got = t.got(SAMPLE_TOKENS, **inputs, uniforms=uniforms)
    tokens = got["tokens"]
    wrong = np.all(tokens != admissible, axis=0) if tokens.shape == uniforms.shape else np.ones(uniforms.size, bool)
    first = f"u = {float(uniforms[np.argmax(wrong)])!r}" if np.any(wrong) else ""
    yield t.number("tokens that are not their uniform's", int(wrong.sum()), "<=", where=first)
    if not np.any(wrong):
        at = np.arange(tokens.size)
        scale = 2 * FLOAT64_U * _scale(inputs, filtered)[at, tokens]
        yield t.within("log-prob error in 2u·S (float64)", got["logprobs"], filtered[at, tokens], scale=scale)


def _greedy_inputs(rng: np.random.Generator, order: str, kind: str) -> dict[str, Any]:
    logits = np.round(rng.normal(0.0, 1.0, (16, 300)), 1).astype(np.float32)
    top = logits.max(axis=1, keepdims=True)
    logits[:, [250, 40, 120]] = top  # three or more tokens share the maximum
    chosen = {**OFF, "temperature": 0.0, "order": order, "logits": logits, "uniforms": rng.random(16)}
    if kind == "filters":
        chosen |= {"top_k": 2, "top_p": 0.5, "min_p": 0.5, **XTC, "xtc_coin": np.zeros(16)}
    if kind == "penalty":
        ids = np.argmax(logits, axis=1)[:, None]
        chosen |= {"repetition_penalty": 1.5, "history": np.concatenate([np.full_like(ids, -1), ids], axis=1)}
    return chosen


@gate(
    "sampling.temperature-zero.lowest-id",
    name="sample_tokens[τ = 0]",
    question="At temperature 0, is the token the lowest id of the largest penalised logit, whatever u and the filters?",
    why="Greedy evaluation must give one answer: a tie broken by chance makes two runs of one model differ.",
    ops=(SAMPLE_TOKENS,),
    cases=tuple(
        Case(f"{kind}-{order}", partial(_greedy_inputs, order=order, kind=kind), quick=True)
        for kind, order in product(("plain", "filters", "penalty"), oracle.ORDERS)
    ),
    bounds={
        "tokens that are not the lowest id of the maximum": Bound("exact", "τ = 0 is defined so", 0),
        "largest |log-prob| of a certain token": Bound("exact", "all mass is on it", 0.0),
    },
)
def temperature_zero_lowest_id(t: Trial) -> Iterator[Evidence]:
    """Put several tokens on the maximum and ask for the first of them."""
    inputs = dict(t.inputs)
    uniforms = inputs.pop("uniforms")
    wanted = np.argmax(t.want(FILTERED_LOGPROBS, **inputs), axis=1)
    maxima = np.sum(inputs["logits"] == inputs["logits"].max(axis=1, keepdims=True), axis=1)
    yield t.precondition("fewest tokens on a maximum", maxima.min(), ">=", 3)
    got = t.got(SAMPLE_TOKENS, **inputs, uniforms=uniforms)
    wrong = got["tokens"] != wanted if got["tokens"].shape == wanted.shape else np.ones(1)
    yield t.number("tokens that are not the lowest id of the maximum", int(np.sum(wrong)), "<=")
    yield t.within("largest |log-prob| of a certain token", got["logprobs"], np.zeros(wanted.shape))
