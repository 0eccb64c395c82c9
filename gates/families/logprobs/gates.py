"""Are log-probs and entropies of tokens, and their gradients, right for every dtype, vocabulary and temperature?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays, layouts
from gates.families.logprobs.op import SELECTIVE_LOG_SOFTMAX, SELECTIVE_LOG_SOFTMAX_BACKWARD, WITH_ENTROPY
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Draw, Evidence, Level, Op, Probe, Trial, Wire
from gates.registry import gate
from gates_reference.oracle import logprobs as oracle

SMALL, LARGE = 257, 151_936  # vocabulary sizes; the larger is Qwen's
IGNORED = -100  # PyTorch's default ignore_index
BATCH = (3, 4)  # completions and tokens of a (B, T, V) batch, as a model returns it
TEMPERATURES = {"cold": 0.25, "hot": 1.5}  # exact in every dtype
TINY = {
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
    "float32": 2.0**-149,
    "float64": 0.0,
}  # the smallest positive number

HALF = ("float16", "bfloat16")
HALF_K = 4.0  # k of half types; the scale holds one rounding to them, divided by k
ROUNDING = "k·2u·S, u that of the result's dtype"
WIDTH = "k = 4: float32 and narrower data in float64, or in float32 summed in pairs or compensated"
BOUNDS = {
    **{
        f"{what} error in 2u·S ({result})": Bound(
            "derived", f"{ROUNDING}, S = {scale}; {because}", k, level="precision"
        )
        for what, scale in (
            ("log-prob", "|x_id − M|/τ + max(1, log Σ exp((x − M)/τ))"),
            ("entropy", "max(1, H)"),
            ("gradient", "|value| + what the rounding of log p does to it; one least subnormal beside it"),
        )
        for result, because, k in (("float32", WIDTH, 4.0), ("float64", "k = 8: with the oracle's own rounding", 8.0))
    },
    **{
        f"gradient error in 2u·S ({result})": Bound(
            "derived",
            "k·2u·S of float32, k = 4, then one rounding to the dtype and one least subnormal",
            HALF_K,
            level="precision",
        )
        for result in HALF
    },
    "results of a narrower dtype": Bound(
        "exact", "float32 for float16, bfloat16 and float32 logits, else float64", 0, level="precision"
    ),
}


def _logits(rng: np.random.Generator, kind: str, rows: int, size: int, *, half: bool) -> Array:
    logits = rng.normal(0.0, 3.0, (rows, size))
    if kind == "peaked":
        logits[np.arange(rows), rng.integers(1, size, rows)] += 1000.0
    if kind == "masked":
        logits[rng.random((rows, size)) < 0.5] = -np.inf
        logits[:, 0], logits[:, 1] = 0.0, -np.inf
    if kind == "equal":
        logits = np.repeat(rng.normal(0.0, 3.0, (rows, 1)), size, axis=1)
    if kind == "concentrated":  # nearly all mass on 24 tokens, so that a float32 sum is accurate in any order
        heads = np.stack([rng.choice(size - 1, 24, replace=False) for _ in logits])
        heads[:, 0] = size - 1
        np.put_along_axis(logits, heads, 30.0 + rng.normal(0.0, 1.0, heads.shape), axis=1)
    if kind == "raised":
        logits += np.where(np.arange(rows) % 2 == 0, 1000.0, -1000.0)[:, None]
    if kind == "denormal":
        logits *= 1e-40
    if kind == "offset":
        far = 128.0 if half else 1e4  # a larger offset would round half-precision logits to a few values
        logits += np.where(np.arange(rows) % 2 == 0, far, -far)[:, None]
    return logits


def _make(rng: np.random.Generator, kind: str, dtype: str, size: int) -> dict[str, Any]:
    rows = 12 if size == SMALL else 3
    logits = arrays.in_dtype(_logits(rng, kind, rows, size, half=dtype in {"float16", "bfloat16"}), dtype)
    ids = rng.integers(0, size, rows)
    ids[0], ids[1] = 0, int(np.argmax(logits[1]))
    if kind == "concentrated":
        ids[2] = size - 1
    if kind == "masked":
        ids = np.where(np.isfinite(logits[np.arange(rows), ids]), ids, 0)
    if kind == "batch":
        logits, ids = logits.reshape(*BATCH, size), ids.reshape(BATCH)
    ignoring: dict[str, Any] = {}
    if "several" in kind:
        ids = np.stack([ids, rng.integers(0, size, rows), ids[::-1], ids], axis=-1)  # the last repeats the first
    if "ignored" in kind:
        ids[rng.random(ids.shape) < 0.25] = IGNORED
        ids[2:5], ids[5] = IGNORED, 7
        if "some" not in kind:
            logits[2:5] = np.nan  # padding may hold anything
        ignoring = {"ignore_index": IGNORED}
    temperature = TEMPERATURES.get(kind, 1.0)
    return {"logits": logits, "ids": ids, "temperature": temperature, **ignoring, "dtype": dtype, "kind": kind}


MORE: dict[str, dict[str, Any]] = {
    "several": {"ids_per_position": "several"},
    "ignored": {"ignore_index": IGNORED},
    "some-ignored": {"ignore_index": IGNORED},
    "several-some-ignored": {"ids_per_position": "several", "ignore_index": IGNORED},
}
#: level → kind of logits → dtypes: one case each.
REGIMES: dict[Level, dict[str, tuple[str, ...]]] = {
    "definition": {
        "normal": ("float32", "float64", *HALF),
        "batch": ("float32",),
        "cold": ("float64",),
        "hot": ("float32",),
        "several": ("float32",),
        "some-ignored": ("float32",),
        "several-some-ignored": ("float64",),
    },
    "robustness": {
        "peaked": ("float32", "bfloat16"),
        "masked": ("float32", "float64"),
        "equal": ("float32",),
        "raised": ("float32",),
    },
    "hardening": {
        "denormal": ("float32",),
        "ignored": ("float32",),
        "layouts": ("float32",),
    },
    "precision": {"offset": ("float32", "float64", "bfloat16")},
}
PROOF = ("peaked-float32", "masked-float32", "raised-float32", "ignored-float32")
LONG_ROWS = {"normal": ("float32", "float64", "bfloat16"), "equal": ("float32",), "hot": ("float16",)}


def _cases() -> Iterator[Case]:
    for level, kinds in REGIMES.items():
        for kind, dtype in ((kind, dtype) for kind, dtypes in kinds.items() for dtype in dtypes):
            make = partial(_make, kind=kind, dtype=dtype, size=SMALL)
            asked = {"dtype": dtype, **MORE.get(kind, {})}
            proof = level == "definition" or f"{kind}-{dtype}" in PROOF
            quick = proof and (dtype == "float32" or kind == "normal")
            yield Case(f"{kind}-{dtype}", make, quick=quick, proof=proof, conventions=asked, level=level)
    for kind, dtype in ((kind, dtype) for kind, dtypes in LONG_ROWS.items() for dtype in dtypes):
        make = partial(_make, kind=kind, dtype=dtype, size=LARGE)
        yield Case(f"{kind}-{LARGE}-{dtype}", make, conventions={"dtype": dtype}, level="precision")


CONCENTRATED = Case(
    f"concentrated-{LARGE}-float32",
    partial(_make, kind="concentrated", dtype="float32", size=LARGE),
    conventions={"dtype": "float32"},
)


def _inputs(t: Draw) -> tuple[str, str, dict[str, Any], dict[str, str] | None]:
    inputs = dict(t.inputs)
    dtype, kind = inputs.pop("dtype"), inputs.pop("kind")
    return kind, dtype, inputs, {"logits": "bfloat16"} if dtype == "bfloat16" else None


def _preconditions(t: Draw) -> Iterator[Evidence]:
    kind, _, inputs, _ = _inputs(t)
    logits = inputs["logits"].astype(np.float64)
    if "ignored" in kind:
        yield t.precondition("ids that are ignored", int(np.sum(inputs["ids"] == IGNORED)), ">=", 3)
        yield t.precondition("ids that are not", int(np.sum(inputs["ids"] != IGNORED)), ">=", 3)
        logits = logits[np.isfinite(logits).all(axis=-1)]
    yield t.precondition("rows", inputs["ids"].size, ">=", 3)
    yield t.precondition(
        "tokens that can be drawn in the emptiest row", np.isfinite(logits).sum(axis=-1).min(), ">=", 64
    )
    if kind == "peaked":
        above = np.sort(logits, axis=1)[:, -1] - np.sort(logits, axis=1)[:, -2]
        yield t.precondition(
            "least height of a peak in nats", above.min(), ">=", 900.0, "exp of what is below it underflows"
        )
    if kind == "masked":
        yield t.precondition("tokens that cannot be drawn", np.isinf(logits).sum(), ">=", 64)


def _dtype(t: Trial, results: tuple[Array, ...], dtype: str) -> Evidence:
    want = "float64" if dtype == "float64" else "float32"
    narrower = sum(np.asarray(x).dtype not in (want, "float64") for x in results)
    return t.number("results of a narrower dtype", narrower, "<=")


def _long(t: Trial) -> bool:
    """Whether rows are long with spread mass: a float32 sum of so many terms only has to meet the precision claim."""
    return bool(t.inputs["logits"].shape[-1] == LARGE and t.inputs["kind"] != "concentrated")


def _limits(t: Trial, op: Op, inputs: Mapping[str, Any], output: str) -> Array:
    """Return textbook limits; 0, unused, for long rows with spread mass."""
    return np.zeros(()) if _long(t) else t.textbook(op, **inputs)[output]


def _claims(
    t: Trial, quantity: str, got: Wire, want: Array, limits: Array, scale: Array, *, dtype: str, where: str = ""
) -> Iterator[Evidence]:
    """Yield the claims of the definition and of full precision; for long rows only the second.

    Half-precision logits allow float32 arithmetic and two roundings to the half type, of the shifted logits and of the
    result. `scale` is 2u·S with the u of float32.
    """
    if _long(t):
        yield t.within(quantity, got, want, scale=scale, where=where)
        return
    if dtype in HALF:
        limits = limits + scale * (UNIT[dtype] / UNIT["float32"])
    yield from t.agrees(quantity, got, want, limits, scale=scale, where=where)


@gate(
    "logprobs.selective.matches-definition",
    level="definition",
    name="selective_log_softmax",
    question="Is lp = x[id]/τ − logsumexp(x/τ), for half, single and double logits, up to a vocabulary of 151,936?",
    why="A naive float32 sum over the vocabulary is off by 1e-4 nats, and every ratio and KL inherits it.",
    ops=(SELECTIVE_LOG_SOFTMAX,),
    cases=(*_cases(), CONCENTRATED),
    bounds=BOUNDS,
    requires=_preconditions,
    probes=(Probe("selective_log_softmax", ("logprobs",)),),
)
def selective_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare with the definition on the logits as rounded to their dtype."""
    kind, dtype, inputs, layout = _inputs(t)
    result = "float64" if dtype == "float64" else "float32"
    want = t.want(SELECTIVE_LOG_SOFTMAX, **inputs)
    scale = 2 * UNIT[result] * oracle.logprob_scale(**inputs)
    limits = _limits(t, SELECTIVE_LOG_SOFTMAX, inputs, "logprobs")
    quantity = f"log-prob error in 2u·S ({result})"
    got = t.got(SELECTIVE_LOG_SOFTMAX, layout=layout, **inputs, entropy=False)["logprobs"]
    yield _dtype(t, (got,), dtype)
    yield from _claims(t, quantity, got, want, limits, scale, dtype=dtype)
    if kind == "layouts":
        for where, outputs in layouts.values(t, SELECTIVE_LOG_SOFTMAX, {**inputs, "entropy": False}, ("logits",)):
            yield from _claims(t, quantity, outputs["logprobs"], want, limits, scale, dtype=dtype, where=where)
    if kind == "masked":
        impossible = {**inputs, "ids": np.ones_like(inputs["ids"])}  # id 1 of a masked row cannot be drawn
        got = t.got(SELECTIVE_LOG_SOFTMAX, layout=layout, **impossible, entropy=False)["logprobs"]
        never = np.full(np.shape(got), -np.inf)
        yield from t.agrees(quantity, got, never, 0.0, where="ids that cannot be drawn")


@gate(
    "logprobs.entropy.matches-definition",
    level="definition",
    name="selective_log_softmax[entropy]",
    question="Is the entropy −Σ p log p that of the same tempered distribution as the log-probs?",
    why="An entropy at τ = 1 beside log-probs at τ = 0.25 selects other tokens for an entropy mask.",
    ops=(WITH_ENTROPY,),
    cases=tuple(_cases()),
    bounds=BOUNDS,
    requires=_preconditions,
    probes=(Probe("selective_log_softmax", ("entropy",)),),
)
def entropy_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare the entropy, and the log-probs returned with it, with the definition."""
    _, dtype, inputs, layout = _inputs(t)
    result = "float64" if dtype == "float64" else "float32"
    want = t.want(WITH_ENTROPY, **inputs)
    got = t.got(WITH_ENTROPY, layout=layout, **inputs, entropy=True)
    yield _dtype(t, (got["logprobs"], got["entropy"]), dtype)
    scale = 2 * UNIT[result] * np.maximum(1.0, want)
    limits = _limits(t, WITH_ENTROPY, inputs, "entropy")
    quantity = f"entropy error in 2u·S ({result})"
    yield from _claims(t, quantity, got["entropy"], want, limits, scale, dtype=dtype)
    scale = 2 * UNIT[result] * oracle.logprob_scale(**inputs)
    limits = _limits(t, WITH_ENTROPY, inputs, "logprobs")
    want_logprobs = t.want(SELECTIVE_LOG_SOFTMAX, **inputs)
    quantity = f"log-prob error in 2u·S ({result})"
    yield from _claims(t, quantity, got["logprobs"], want_logprobs, limits, scale, dtype=dtype)


def _backward_make(
    make: Callable[[np.random.Generator], dict[str, Any]], rng: np.random.Generator, *, entropy: bool
) -> dict[str, Any]:
    inputs = make(rng)
    dtype = "float64" if inputs["dtype"] == "float64" else "float32"
    rows = inputs["logits"].shape[:-1]
    upstream, of_entropy = (rng.normal(0.0, 1.0, shape).astype(dtype) for shape in (inputs["ids"].shape, rows))
    return {**inputs, "grad_logprobs": upstream, "grad_entropy": of_entropy if entropy else None}


def _backward_cases() -> Iterator[Case]:
    for case in _cases():
        for name, entropy in (("", False), ("-entropy", True)):
            if entropy or case.name in {"normal-float32", "hot-float32"}:
                make = partial(_backward_make, case.make, entropy=entropy)  # type: ignore[arg-type]
                yield replace(case, name=f"{case.name}{name}", make=make)


def _backward_preconditions(t: Draw) -> Iterator[Evidence]:
    yield from _preconditions(t)
    kind, _, inputs, _ = _inputs(t)
    want = t.want(SELECTIVE_LOG_SOFTMAX_BACKWARD, **inputs)
    yield t.precondition("largest |gradient|", np.max(np.abs(want)), ">=", 0.05)
    if inputs["grad_entropy"] is not None and kind not in {"equal", "peaked", "denormal"}:  # where dH/dx is 0
        without = t.want(SELECTIVE_LOG_SOFTMAX_BACKWARD, **{**inputs, "grad_entropy": None})
        yield t.precondition("largest share of the entropy", np.max(np.abs(want - without)), ">=", 1e-4)


@gate(
    "logprobs.backward.matches-definition",
    level="definition",
    name="selective_log_softmax_backward",
    question="Is the gradient of the logits (Σ g (onehot − p) − g_H p (log p + H)) / τ?",
    why="A forgotten 1/τ scales the learning rate; a forgotten H pushes the entropy the wrong way.",
    ops=(SELECTIVE_LOG_SOFTMAX_BACKWARD,),
    cases=tuple(_backward_cases()),
    bounds=BOUNDS,
    requires=_backward_preconditions,
    probes=(Probe("selective_log_softmax_backward", ("gradient",)),),
)
def backward_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every element of the gradient, in units of its conditioning and of the least subnormal."""
    _, dtype, inputs, layout = _inputs(t)
    want = t.want(SELECTIVE_LOG_SOFTMAX_BACKWARD, **inputs)
    inside = "float64" if dtype == "float64" else "float32"
    scale = 2 * UNIT[inside] * oracle.backward_scale(**inputs) + TINY[dtype] * (want != 0.0)
    limits = _limits(t, SELECTIVE_LOG_SOFTMAX_BACKWARD, inputs, "gradient")
    got = t.got(SELECTIVE_LOG_SOFTMAX_BACKWARD, layout=layout, **inputs)["gradient"]
    quantity = f"gradient error in 2u·S ({dtype})"
    if dtype in HALF:  # one rounding to the dtype, and 1% for rounding twice
        limits = limits + scale * (UNIT[dtype] / UNIT["float32"])
        scale = scale + 1.01 * UNIT[dtype] * np.abs(want) / HALF_K
    yield from _claims(t, quantity, got, want, limits, scale, dtype="float32" if dtype in HALF else dtype)
