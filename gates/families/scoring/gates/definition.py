"""Are the scores that enter a loss those of the model's own logits, in every family?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.logprobs.op import WITH_ENTROPY
from gates.families.rollout import runs
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.families.scoring.op import COMPLETION_ENTROPIES, COMPLETION_LOGPROBS
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Evidence, Probe, Recipe, Trial, UnsupportedError
from gates.registry import gate
from gates_reference.oracle import logprobs

TEMPERATURE = 0.7


def _make(
    rng: np.random.Generator, family: str = "qwen3", bits: int = 32, *, embeddings: bool = False
) -> dict[str, Any]:
    inputs = runs.case_inputs(
        rng, temperature=1.0, top_p=1.0, samples=4, count=6, bits=bits, family=family, style="worded"
    )
    return {**inputs, "adapter": {**runs.ADAPTER, "embeddings": embeddings}}


def _case(name: str, *, quick: bool = False, proof: bool = False, model: str = "", **changes: Any) -> Case:
    """Return a case whose naive rollout several gates share."""
    make = partial(_make, **changes)
    return Case(f"{name}-scored", make, quick=quick, proof=proof, model=model or name, sample=f"scoring/{name}")


CASES = (
    _case("qwen3", quick=True),
    _case("qwen3-4-bit", bits=4),
    _case("llama-embeddings", model="llama", family="llama", embeddings=True),
    _case("gemma3_text-tied-embeddings", model="gemma3_text-tied", family="gemma3_text", embeddings=True),
    _case("qwen3_moe-4-bit", family="qwen3_moe", bits=4),
    _case("qwen3_next", proof=True, family="qwen3_next"),
    _case("qwen3_5", family="qwen3_5"),
)


def _scored(t: Trial) -> Iterator[Evidence]:
    """Yield the preconditions, and keep the rollout with its logits in the trial's facts."""
    yield from runs.calibrate(t, t.inputs["adapter"])
    run = runs.cut_at_ends(runs.slow(t, adapter=t.inputs["adapter"]))
    inside = np.arange(run["tokens"].shape[1]) < np.asarray(run["lengths"])[:, None]
    yield t.precondition("scored tokens", int(inside.sum()), ">=", 30)
    yield t.precondition("different lengths of prompts", len({len(p) for p in runs.row_prompts(run)}), ">=", 2)
    yield t.precondition("different lengths of completions", len(set(np.asarray(run["lengths"]).tolist())), ">=", 2)
    t.facts["run"], t.facts["inside"] = run, inside
    t.facts["rerouted"] = inside & ~runs.settled(t, run, t.inputs["adapter"])


def _batch(t: Trial) -> Mapping[str, Any]:
    return {**runs.scoring_batch(t, t.facts["run"]), "temperature": TEMPERATURE, "adapter": t.inputs["adapter"]}


def _table(t: Trial, values: Array) -> Array:
    """Return values (R, T) with 0 outside scored tokens, as subjects return them."""
    return np.where(t.facts["inside"], values, 0.0)


def _comparable(t: Trial, values: Array) -> Array:
    """Return values (R, T) with 0 where another batch shape may choose other experts."""
    return np.where(t.facts["rerouted"], 0.0, values)


@gate(
    "scoring.log-probs.match-logits",
    level="definition",
    name="completion_logprobs",
    question="Are the log-probs of a padded batch of completions those of the logits that the naive path drew them from?",
    why="A head applied to the wrong states, or scores in the wrong slots, look like a bad policy, never like a mistake.",
    ops=(ROLLOUT, TOKEN_LOGITS, COMPLETION_LOGPROBS),
    cases=CASES,
    bounds={"log-probs": Bound("calibrated", f"{runs.NOISE}; over τ", lambda t: t.facts["E"] / TEMPERATURE)},
    probes=(Probe("completion_logprobs", ("logprobs",)),),
)
def log_probs_match_logits(t: Trial) -> Iterator[Evidence]:
    """Draw with one full forward per token, then score all rows at once at another temperature."""
    yield from _scored(t)
    run = t.facts["run"]
    ids = np.maximum(run["tokens"], 0)
    want = logprobs.selective_log_softmax(run["logits"], ids, temperature=TEMPERATURE)
    got = t.got(COMPLETION_LOGPROBS, **_batch(t), adapters_on=True)["logprobs"]
    yield t.within("log-probs", _comparable(t, got), _comparable(t, _table(t, want)))


@gate(
    "scoring.entropies.match-logits",
    level="definition",
    name="completion_entropies",
    question="Are the entropies of a padded batch those of the same logits at the same temperature?",
    why="They choose the tokens of a top-entropy mask and enter an entropy bonus: a wrong one trains other tokens.",
    ops=(ROLLOUT, TOKEN_LOGITS, COMPLETION_ENTROPIES),
    cases=CASES,
    bounds={
        "entropies": Bound(
            "calibrated",
            f"{runs.NOISE}; |ΔH| <= Σ p |log p + H| · E/τ <= 2 log V · E/τ, V the vocabulary",
            lambda t: 2 * float(np.log(t.facts["run"]["logits"].shape[2])) * t.facts["E"] / TEMPERATURE,
        )
    },
    probes=(Probe("completion_entropies", ("entropies",)),),
)
def entropies_match_logits(t: Trial) -> Iterator[Evidence]:
    """Compare with the oracle's entropies of the logits that the naive path recorded."""
    yield from _scored(t)
    want = logprobs.entropy(t.facts["run"]["logits"], temperature=TEMPERATURE)
    yield t.precondition("mean entropy", float(want[t.facts["inside"]].mean()), ">=", 0.5)
    got = t.got(COMPLETION_ENTROPIES, **_batch(t))["entropies"]
    yield t.within("entropies", _comparable(t, got), _comparable(t, _table(t, want)))


UPCAST = (
    "k·2u·S, k = 4, u of float32, S = |x_id − M|/τ + max(1, log Σ exp((x − M)/τ)): a logit in half precision is a float32 "
    "number as it stands, so what follows it owes no more than for float32 logits"
)
UPCAST_ENTROPY = "k·2u·S, k = 4, u of float32, S = max(1, H), as for float32 logits"
EXACT = 0.75  # a temperature that is exact in every dtype


def _half(rng: np.random.Generator, dtype: str, temperature: float) -> dict[str, Any]:
    lengths = np.array([12, 7, 10, 3, 12, 5], np.int64)
    tokens = rng.integers(3, 272, (len(lengths), 12)).astype(np.int32)
    return {
        "model": Recipe("model", {"seed": 11, "vocab": 272, "dtype": dtype}),
        "prompt_tokens": [rng.integers(3, 272, int(n)).astype(np.int32) for n in rng.integers(4, 14, len(lengths))],
        "tokens": tokens,
        "lengths": lengths,
        "adapter": runs.ADAPTER,
        "temperature": temperature,
        "dtype": dtype,
    }


def _half_of(logits: Array) -> str:
    """Return the half-precision dtype that holds all logits of the model of `--model`."""
    for dtype in ("bfloat16", "float16"):
        if np.array_equal(arrays.in_dtype(logits, dtype), logits):
            return dtype
    raise UnsupportedError("the logits of this model are float32; the gate asks about half precision")


@gate(
    "scoring.half-logits.upcast",
    level="definition",
    name="completion_logprobs[half precision]",
    question="Of a model in bfloat16 or float16, are log-probs and entropies those of its own logits, in float32?",
    why="A log-softmax in the logits' dtype is off by percents: the ratio of a fresh batch scatters, and the clip acts on noise.",
    ops=(TOKEN_LOGITS, COMPLETION_LOGPROBS, COMPLETION_ENTROPIES),
    cases=(
        Case("bfloat16", partial(_half, dtype="bfloat16", temperature=1.0), proof=True, model="bfloat16"),
        Case("bfloat16-tempered", partial(_half, dtype="bfloat16", temperature=EXACT), quick=True, model="bfloat16"),
        Case("float16", partial(_half, dtype="float16", temperature=1.0), proof=True, model="float16"),
    ),
    bounds={
        "log-prob error in 2u·S": Bound("derived", UPCAST, 4.0, level="precision"),
        "entropy error in 2u·S": Bound("derived", UPCAST_ENTROPY, 4.0, level="precision"),
        "log-probs that are narrower than float32": Bound(
            "exact", "the result of half logits is float32", 0, level="precision"
        ),
    },
    probes=(Probe("completion_logprobs", ("logprobs",)), Probe("completion_entropies", ("entropies",))),
)
def half_logits_upcast(t: Trial) -> Iterator[Evidence]:
    """Compute both in float64 from the logits in the model's own dtype, adapters on."""
    x = t.inputs
    dtype, temperature, tokens = x["dtype"], x["temperature"], x["tokens"]
    inside = np.arange(tokens.shape[1]) < x["lengths"][:, None]
    batch = {name: x[name] for name in ("model", "prompt_tokens", "tokens", "lengths", "adapter")}
    logits = np.asarray(t.got(TOKEN_LOGITS, **batch, dtype="float32")["logits"])[inside]
    ids = tokens[inside]
    if "path" in x["model"].spec:
        dtype = _half_of(logits)
    yield t.precondition(f"logits that are no {dtype}", int(np.sum(arrays.in_dtype(logits, dtype) != logits)), "<=", 0)
    want = logprobs.selective_log_softmax(logits, ids, temperature=temperature)
    scale = 2 * UNIT["float32"] * logprobs.logprob_scale(logits, ids, temperature=temperature)
    lost = np.abs(arrays.in_dtype(want, dtype).astype(np.float64) - want) / scale
    yield t.precondition(f"error of the definition rounded to {dtype} in 2u·S", float(lost.max()), ">=", 100.0)
    got = np.asarray(t.got(COMPLETION_LOGPROBS, **batch, temperature=temperature, adapters_on=True)["logprobs"])
    yield t.number(
        "log-probs that are narrower than float32",
        int(got.dtype not in (np.float32, np.float64)),
        "<=",
        where=str(got.dtype),
    )
    half = UNIT[dtype] / UNIT["float32"]  # the definition admits two roundings to the half type
    limits = t.textbook(WITH_ENTROPY, logits=logits, ids=ids, temperature=temperature)
    yield from t.agrees("log-prob error in 2u·S", got[inside], want, limits["logprobs"] + half * scale, scale=scale)
    entropy = logprobs.entropy(logits, temperature=temperature)
    entropies = np.asarray(t.got(COMPLETION_ENTROPIES, **batch, temperature=temperature)["entropies"])
    scale = 2 * UNIT["float32"] * np.maximum(1.0, entropy)
    yield from t.agrees(
        "entropy error in 2u·S", entropies[inside], entropy, limits["entropy"] + half * scale, scale=scale
    )
