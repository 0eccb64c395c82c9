"""Is a drawn token that of its uniform?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families.sampling import cases
from gates.families.sampling.op import FILTERED_LOGPROBS, SAMPLE_TOKENS
from gates.families.units import FLOAT64_U
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import sampling as oracle


def _draw_inputs(rng: np.random.Generator, filters: str, order: str, size: int) -> dict[str, Any]:
    ends = np.array([0.0, 2.0**-53, 0.5, 0.99, 0.9999, 0.99999, 0.999999, 1 - 2.0**-53])
    uniforms = np.concatenate([ends, rng.random(56 if size < cases.LARGE else 4)])
    chosen = cases.inputs(rng, filters, order, "float32", size)
    rows = np.resize(np.arange(len(chosen["logits"])), uniforms.size)
    for name in {"logits", "xtc_coin", "history", "generated"} & chosen.keys():
        chosen[name] = chosen[name] if chosen[name] is None else chosen[name][rows]
    forbidden = "logit_bias" if "logit_bias" in chosen else "logits"
    chosen[forbidden] = chosen[forbidden].copy()
    chosen[forbidden][..., :3] = -np.inf  # u = 0 must not pick token 0
    return {**chosen, "uniforms": uniforms}


def _draw_tied(rng: np.random.Generator, **filters: Any) -> dict[str, Any]:
    chosen = cases.tied(rng, "top-k", "hf", "all")
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
                conventions={"order": order, **cases.least(filters)},
            )
            for filters, order in product(cases.DRAWN, oracle.ORDERS)
        ),
        Case("tied-hf", _draw_tied, quick=True, conventions={"order": "hf", "ties": "all"}),
        Case(
            "tied-min-p-hf",
            partial(_draw_tied, top_k=0, min_p=1.0, ties="lower-id"),  # all tokens at the bound stay
            quick=True,
            conventions={"order": "hf", "ties": "lower-id"},
        ),
        Case(f"none-hf-{cases.LARGE}", partial(_draw_inputs, filters="none", order="hf", size=cases.LARGE), quick=True),
        Case(f"top-p-hf-{cases.LARGE}", partial(_draw_inputs, filters="top-p", order="hf", size=cases.LARGE)),
    ),
    bounds={
        **cases.QUANTITIES,
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
    near = [np.clip(uniforms * (1 + side), 0.0, 1 - 2.0**-53) for side in (-cases.EDGE, 0.0, cases.EDGE)]
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
        scale = 2 * FLOAT64_U * cases.scale(inputs, filtered)[at, tokens]
        yield t.within("log-prob error in 2u·S (float64)", got["logprobs"], filtered[at, tokens], scale=scale)


def _greedy_inputs(rng: np.random.Generator, order: str, kind: str) -> dict[str, Any]:
    logits = np.round(rng.normal(0.0, 1.0, (16, 300)), 1).astype(np.float32)
    top = logits.max(axis=1, keepdims=True)
    logits[:, [250, 40, 120]] = top  # three or more tokens share the maximum
    chosen = {**cases.OFF, "temperature": 0.0, "order": order, "logits": logits, "uniforms": rng.random(16)}
    if kind == "filters":
        chosen |= {"top_k": 2, "top_p": 0.5, "min_p": 0.5, **cases.XTC, "xtc_coin": np.zeros(16)}
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
