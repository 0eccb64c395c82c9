"""Is each drawn token the one of its uniform?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families.sampling import cases
from gates.families.sampling.op import FILTERED_LOGPROBS, SAMPLE_TOKENS
from gates.families.units import FLOAT64_U
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import sampling as oracle

ENDS = np.array([0.0, 2.0**-53, 0.5, 0.99, 0.9999, 0.99999, 0.999999, 1 - 2.0**-53])
PLAIN = (  # filters and order; only a draw tests filters that leave one token
    *product(("top-k", "top-p", "all"), oracle.ORDERS),
    *(("none", "hf"), ("top-k-one", "hf"), ("top-p-zero", "hf"), ("min-p-one", "hf")),
    *(("min-tokens-top-k", "hf"), ("xtc-special", "mlx-lm"), ("penalties", "mlx-lm")),
)
WIDE = (("none", "hf"), ("top-p", "mlx-lm"), ("all", "hf"), ("penalties", "mlx-lm"))  # also in float64


def _draw_inputs(rng: np.random.Generator, filters: str, order: str, size: int, *, wide: bool) -> dict[str, Any]:
    uniforms = np.concatenate([ENDS if wide else [0.0, 0.5, 0.99], rng.random(56 if size < cases.LARGE else 4)])
    chosen = cases.inputs(rng, filters, order, "float32", size)
    forbidden = "logit_bias" if "logit_bias" in chosen else "logits"
    chosen[forbidden] = chosen[forbidden].copy()
    chosen[forbidden][..., :3] = -np.inf  # u = 0 must not pick token 0
    return {**chosen, "uniforms": uniforms, "wide": wide}


def admitted_tokens(filtered: Array, sums: Array | None, uniforms: Array, rows: Array) -> Array:
    """Return (N, V) bool: the token of each uniform, and neighbours that rounding cannot exclude.

    Args:
        filtered: (B, V) log-probs of the definition.
        sums: (B, V) limits of the running sums; None for those of float64.
        uniforms: (N,) in [0, 1).
        rows: (N,) the row of each uniform.
    """
    low, high = oracle.token_intervals(filtered)
    room = cases.EDGE * high if sums is None else sums
    before = np.concatenate([np.zeros((len(room), 1)), room[:, :-1]], axis=1)
    filtered, low, high, room, before = (x[rows] for x in (filtered, low, high, room, before))
    u = uniforms[:, None]
    return np.asarray((filtered > -np.inf) & (u >= low - before) & ((u < high + room) | ((u <= high) & (room > 0.0))))


def _for_each(uniforms: Array, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs with one row for each uniform, repeating the rows cyclically."""
    rows = np.resize(np.arange(len(chosen["logits"])), uniforms.size)
    by_row = {"logits", "xtc_coin", "history", "generated"}
    return {name: value[rows] if name in by_row and value is not None else value for name, value in chosen.items()}


def _draw_tied(rng: np.random.Generator, **filters: Any) -> dict[str, Any]:
    logits = np.minimum(np.round(rng.normal(0.0, 2.0, (4, 600))), 7.0).astype(np.float32)
    logits[:, 0], logits[:, 5:15] = -np.inf, 10.0  # ten tokens share the maximum
    return {**cases.OFF, "order": "hf", **filters, "logits": logits, "uniforms": rng.random(48), "wide": False}


def _draw_cases() -> Iterator[Case]:
    for filters, order in PLAIN:
        make = partial(_draw_inputs, filters=filters, order=order, size=400, wide=False)
        conventions = {"order": order, **cases.least(filters)}
        quick = filters in {"all", "none"}
        yield Case(f"{filters}-{order}-float32", make, quick=quick, proof=True, conventions=conventions)
    # all tokens at the bound stay
    yield Case("tied-min-p-of-600-hf", partial(_draw_tied, min_p=1.0), quick=True, conventions={"order": "hf"})
    yield Case(
        "tied-top-k-of-600-hf",
        partial(_draw_tied, top_k=40, ties="all"),
        quick=True,
        level="rule",
        conventions={"order": "hf"},
        declared={"ties": "all"},
    )
    for filters, order in WIDE:
        make = partial(_draw_inputs, filters=filters, order=order, size=400, wide=True)
        name, asked = f"{filters}-{order}", {"order": order}
        yield Case(name, make, quick=filters == "all", proof=True, conventions=asked, declared=cases.IN_FLOAT64)
    for filters in ("none", "top-p"):
        make = partial(_draw_inputs, filters=filters, order="hf", size=cases.LARGE, wide=True)
        proof = filters == "none"
        name = f"{filters}-hf-{cases.LARGE}"
        yield Case(name, make, proof=proof, conventions={"order": "hf"}, declared=cases.IN_FLOAT64)


def _preconditions(t: Draw) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    uniforms, wide = inputs.pop("uniforms"), inputs.pop("wide")
    filtered, sums = t.want(FILTERED_LOGPROBS, **inputs), None
    if not wide:
        yield cases.undecided(t, SAMPLE_TOKENS, inputs)
        sums = t.textbook(SAMPLE_TOKENS, **inputs)["sums"]
    rows = np.resize(np.arange(len(filtered)), uniforms.size)
    admitted = admitted_tokens(filtered, sums, uniforms, rows)
    edges = int(np.sum(admitted.sum(axis=1) > 1))
    yield t.precondition("draws beside a boundary", edges, "<=", max(1, uniforms.size // (100 if wide else 8)))
    yield t.precondition("draws that no token has", int(np.sum(~admitted.any(axis=1))), "<=", 0)
    yield t.precondition("distinct tokens", np.unique(np.argmax(admitted, axis=1)).size, ">=", 4)
    impossible = int(np.sum(filtered[rows, 0] == -np.inf))
    yield t.precondition("rows whose first token cannot be drawn", impossible, ">=", rows.size)


@gate(
    "sampling.draw.inverse-cdf",
    level="definition",
    name="sample_tokens",
    question="Is the token the least k with C_k > u·C_V, and its log-prob that of the filtered row?",
    why="A float32 running sum ends at 0.99999 for 152k tokens; ≥ instead of > picks a filtered token 0 at u = 0.",
    ops=(SAMPLE_TOKENS,),
    cases=tuple(_draw_cases()),
    bounds={
        **cases.QUANTITIES,
        "tokens that are not their uniform's": Bound(
            "exact",
            "the token of u, or a neighbour where a running sum lies within its own rounding of u: of the dtype of the "
            "logits, or 1e-11 for a subject that declares float64",
            0,
        ),
    },
    requires=_preconditions,
    probes=(Probe("sample_tokens", ("logprobs",)),),
)
def draw_inverse_cdf(t: Trial) -> Iterator[Evidence]:
    """Look up every uniform in the oracle's intervals, widened by the rounding error of the running sums."""
    inputs = dict(t.inputs)
    uniforms, wide = inputs.pop("uniforms"), inputs.pop("wide")
    filtered = t.want(FILTERED_LOGPROBS, **inputs)
    limits = None if wide else t.textbook(SAMPLE_TOKENS, **inputs)
    rows = np.resize(np.arange(len(filtered)), uniforms.size)
    admitted = admitted_tokens(filtered, None if limits is None else limits["sums"], uniforms, rows)
    filtered, inputs = filtered[rows], _for_each(uniforms, inputs)
    got = t.got(SAMPLE_TOKENS, **inputs, uniforms=uniforms)
    tokens, at = got["tokens"], np.arange(uniforms.size)
    fits = tokens.shape == uniforms.shape and bool(np.all((tokens >= 0) & (tokens < filtered.shape[1])))
    wrong = ~admitted[at, tokens] if fits else np.ones(uniforms.size, bool)
    first = f"u = {float(uniforms[np.argmax(wrong)])!r}" if np.any(wrong) else ""
    yield t.number("tokens that are not their uniform's", int(wrong.sum()), "<=", where=first)
    if np.any(wrong):
        return
    quantity, want = "log-prob error in 2u·S (float64)", filtered[at, tokens]
    if limits is None:
        scale = 2 * FLOAT64_U * cases.scale(inputs, filtered)[at, tokens]
        yield t.within(quantity, got["logprobs"], want, scale=scale)
    else:
        yield from t.agrees(quantity, got["logprobs"], want, limits["logprobs"][rows, tokens])


def _greedy_inputs(rng: np.random.Generator, order: str, kind: str, *, tied: bool) -> dict[str, Any]:
    logits = np.round(rng.normal(0.0, 1.0, (16, 300)), 1).astype(np.float32)
    top = logits.max(axis=1, keepdims=True)
    if tied:
        logits[:, [250, 40, 120]] = top  # at least three tokens share the maximum
    else:
        np.put_along_axis(logits, rng.integers(0, 300, (16, 1)), top + 0.5, axis=1)
    chosen = {**cases.OFF, "temperature": 0.0, "order": order, "logits": logits, "uniforms": rng.random(16)}
    if kind == "filters":
        chosen |= {"top_k": 2, "top_p": 0.5, "min_p": 0.5, **cases.XTC, "xtc_coin": np.zeros(16)}
    if kind == "penalty":
        ids = np.argmax(logits, axis=1)[:, None]
        chosen |= {"repetition_penalty": 1.5, "history": np.concatenate([np.full_like(ids, -1), ids], axis=1)}
    return chosen


def _maxima(t: Draw) -> Iterator[Evidence]:
    logits = t.inputs["logits"]
    maxima = np.sum(logits == logits.max(axis=1, keepdims=True), axis=1)
    yield t.precondition("fewest tokens on a maximum", maxima.min(), ">=", 3 if maxima.max() > 1 else 1)


@gate(
    "sampling.temperature-zero.lowest-id",
    level="definition",
    name="sample_tokens[τ = 0]",
    question="At temperature 0, is the token the lowest id of the largest penalised logit, whatever u and the filters?",
    why="Greedy evaluation must give one answer: a tie broken by chance makes two runs of one model differ.",
    ops=(SAMPLE_TOKENS,),
    cases=(
        *(
            Case(
                f"one-maximum-{kind}-{order}",
                partial(_greedy_inputs, order=order, kind=kind, tied=False),
                quick=True,
                conventions={"order": order},
            )
            for kind, order in (("plain", "hf"), *product(("filters",), oracle.ORDERS), ("penalty", "hf"))
        ),
        *(
            Case(
                f"{kind}-{order}",
                partial(_greedy_inputs, order=order, kind=kind, tied=True),
                quick=True,
                level="rule",
                conventions={"order": order},
                declared={"ties": "lower-id"},
            )
            for kind, order in (("plain", "hf"), *product(("filters",), oracle.ORDERS), ("penalty", "hf"))
        ),
    ),
    bounds={
        "tokens that are not the lowest id of the maximum": Bound("exact", "τ = 0 is defined so", 0),
        "largest |log-prob| of a certain token": Bound("exact", "all mass is on it", 0.0),
    },
    requires=_maxima,
)
def temperature_zero_lowest_id(t: Trial) -> Iterator[Evidence]:
    """Require the token of the maximum, or the first of several."""
    inputs = dict(t.inputs)
    uniforms = inputs.pop("uniforms")
    want = np.argmax(t.want(FILTERED_LOGPROBS, **inputs), axis=1)
    got = t.got(SAMPLE_TOKENS, **inputs, uniforms=uniforms)
    wrong = got["tokens"] != want if got["tokens"].shape == want.shape else np.ones(1)
    yield t.number("tokens that are not the lowest id of the maximum", int(np.sum(wrong)), "<=")
    yield t.within("largest |log-prob| of a certain token", got["logprobs"], np.zeros(want.shape))
