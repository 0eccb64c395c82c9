"""Do fast paths draw the tokens of the slow one? One gate per path, one case per model family or sampler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.equivalence import Comparison
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.families.rollout.prompts import recipe
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate

PROOF = ("qwen3_next",)  # has recurrent layers, experts and attention; each path is compared with one slow run
COMPILED = ("llama", "qwen3_moe")  # families whose layers all have plain key-value caches
DRAWS = 100_000  # clause 11: compared draws of a full run, per sampler and over all families; a quick run has a tenth
SPARE = 16  # draws
LIMIT_S = 120.0  # of one call, which takes seconds unless other gates run at the same time
ONE_BY_ONE = 60_000  # draws of the path with one forward per token and row
NOISE = (
    "E = 8F, F the naive path's own float32 noise against float64 on other prompts and draws, measured in this run; in a row "
    "in which that path is off by more than F, 8 times that"
)

BOUNDS = {
    "unexplained differences": Bound(
        "exact", "token equivalence, clause 10: every token is right for its own logits", 0
    ),
    "draws that did not use their keyed uniform": Bound("exact", "key = seed, counter = (t, j, i, round)", 0),
    "largest |Δ log-softmax| between the paths": Bound("calibrated", NOISE, lambda t: t.facts["E"]),
    "explained differences": Bound(
        "derived",
        "λ + 5√λ + 8, λ the CDF mass the two paths do not share; 0 where logits are bit-equal",
        lambda t: t.facts["allowed"],
    ),
}


_greedy = partial(runs.case_inputs, temperature=0.0, top_p=1.0, samples=1, count=500)
_sampled = partial(runs.case_inputs, temperature=0.7, top_p=0.95, samples=32, count=4)
FILTERS: dict[str, dict[str, Any]] = {
    "hf-filters": {
        "order": "hf",
        "temperature": 1.25,
        "top_k": 60,
        "min_p": 0.001,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.2,
        "repetition_penalty": 1.125,
    },
    "mlx-lm-filters": {
        "order": "mlx-lm",
        "temperature": 1.25,
        "top_k": 60,
        "min_p": 0.001,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.2,
        "repetition_penalty": 1.125,
    },
}


def _inputs(rng: np.random.Generator, make: Any, draws: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    return {**make(rng, **changes), "draws": draws, "style": "worded"}


def _case(
    name: str,
    make: Any,
    *,
    quick: bool = False,
    proof: bool = False,
    draws: int = DRAWS,
    model: str = "",
    **changes: Any,
) -> Case:
    inputs = partial(_inputs, make=make, draws=draws, changes=changes)
    return Case(name, inputs, quick=quick, proof=proof, limit_s=LIMIT_S, model=model, sample=runs.SAMPLE)


def _families(names: tuple[str, ...], proof: tuple[str, ...], draws: int = DRAWS) -> Iterator[Case]:
    """Yield a case for each family; together they compare this number of draws."""
    for name in names:
        of = draws // len(names)
        yield _case(f"{name}-sampled", _sampled, proof=name in proof, draws=of, model=name, family=name)


def _qwen3(*, greedy_draws: int = DRAWS) -> Iterator[Case]:
    yield _case("greedy", _greedy, draws=greedy_draws)
    yield _case("sampled", _sampled)


def _filtered(*quick: str) -> Iterator[Case]:
    for name, choice in FILTERS.items():
        yield _case(name, _sampled, quick=name in quick, draws=DRAWS // 5, **choice)


def _probe(path: str) -> tuple[Probe, ...]:
    return (Probe("rollout", ("logits",), lambda inputs: inputs["path"] == path),)


def _equal(t: Trial, path: str) -> Iterator[Evidence]:
    """Compare a path with the naive one, over ragged prompts and rows that end early."""
    want = int(t.inputs["draws"]) // (10 if t.quick else 1)
    yield from runs.calibrate(t)
    comparison = Comparison(t.facts["E"], t.inputs["sampler"])
    eos = runs.choose_eos(t)
    round_ = 0
    while comparison.draws < want and round_ < max(10, want // 200):
        changes = {"eos_ids": eos, "round_": round_, **_prompts(t, round_)}
        slow = _enough(runs.slow(t, **changes), want - comparison.draws)
        fast = runs.rollout(t, path, rows=slow["rows"], **changes)
        gaps = partial(_router_gaps, t, slow)
        comparison.add(
            slow, fast, seed=t.inputs["seed"], round_=round_, gaps=gaps, noise=partial(runs.own_noise, t, slow)
        )
        round_ += 1
        if comparison.unexplained and round_ > 1:
            break  # more rounds cannot undo the failure
    yield from _preconditions(t, comparison, 1 if comparison.unexplained else want)
    yield from claims(t, comparison)


def _enough(run: Mapping[str, Any], draws: int) -> dict[str, Any]:
    """Return rows of a rollout from all its prompts, with at least this number of draws and a reserve for cut rows."""
    order = np.concatenate([np.arange(start, len(run["rows"]), 4) for start in range(4)])
    held = np.cumsum(np.asarray(run["lengths"])[order])
    rows = np.sort(order[: int(np.searchsorted(held, 1.01 * draws + SPARE)) + 1])
    return {**run, **{name: np.asarray(run[name])[rows] for name in runs.PER_ROW}}


def _router_gaps(t: Trial, run: Mapping[str, Any]) -> Array | None:
    """Return the router gap of each draw of a run (R, T); None for a model without experts."""
    gaps = t.got_once(TOKEN_LOGITS, **runs.scoring_batch(t, run), dtype="float32", adapter=None).get("router_gaps")
    return None if gaps is None else np.asarray(gaps)


@gate(
    "rollout.batched.equals-naive",
    level="law",
    name="rollout[batched]",
    question="Does the batched, cached rollout draw the tokens of one full forward per token?",
    why="Padding, positions, caches and compaction go wrong in ways that still read like language.",
    ops=(ROLLOUT, TOKEN_LOGITS),
    cases=(
        *_qwen3(),
        *_filtered("hf-filters"),
        *_families(runs.FAMILIES, PROOF),
    ),
    bounds=BOUNDS,
    probes=_probe("batched"),
)
def batched_equals_naive(t: Trial) -> Iterator[Evidence]:
    """Compare every family, because left padding may corrupt recurrent state and shift windows."""
    yield from _equal(t, "batched")


@gate(
    "rollout.prefix.equals-naive",
    level="law",
    name="rollout[prefix]",
    question="Does a prompt prefilled once give all samples of its group the tokens of one full forward per token?",
    why="A shared prefix that one sample writes into, or that is older than the weights, is the other samples' prompt.",
    ops=(ROLLOUT, TOKEN_LOGITS),
    cases=(*_qwen3(greedy_draws=ONE_BY_ONE // 6), *_families(runs.FAMILIES, PROOF)),
    bounds=BOUNDS,
    probes=_probe("prefix"),
)
def prefix_equals_naive(t: Trial) -> Iterator[Evidence]:
    """Compare groups of samples without padding, for which each family's own caches are repeated."""
    yield from _equal(t, "prefix")


@gate(
    "rollout.compiled.equals-naive",
    level="law",
    name="rollout[compiled]",
    question="Does the compiled step over fixed buffers draw the tokens of one full forward per token?",
    why="What a compiler bakes in, a mask over unwritten columns and idle rows of a bucket go wrong silently.",
    ops=(ROLLOUT, TOKEN_LOGITS),
    cases=(*_qwen3(), *_families(COMPILED, ()), *_filtered("hf-filters")),
    bounds=BOUNDS,
    probes=_probe("compiled"),
)
def compiled_equals_naive(t: Trial) -> Iterator[Evidence]:
    """Compare families with plain key-value caches; `unsupported` if MLX has no compiler at run time."""
    yield from _equal(t, "compiled")


@gate(
    "rollout.cached.equals-naive",
    level="law",
    name="rollout[cached]",
    question="Does one row over its own cache draw the tokens of one full forward per token?",
    why="It is the plainest use of a cache, and so the first place to look when a faster path is wrong.",
    ops=(ROLLOUT, TOKEN_LOGITS),
    cases=tuple(_families(("qwen3", *runs.FAMILIES), PROOF, ONE_BY_ONE)),
    bounds=BOUNDS,
    probes=_probe("cached"),
)
def cached_equals_naive(t: Trial) -> Iterator[Evidence]:
    """Compare one row at a time, with fewer draws than the other paths."""
    yield from _equal(t, "cached")


def _prompts(t: Trial, round_: int) -> dict[str, Any]:
    """Return different prompts for each round: first a few long and ragged ones of the case's style, then many short ones."""
    seed, count = int(t.inputs["seed"]) + round_, t.inputs["prompts"].spec["count"]
    if round_ == 0:
        return {"prompts": recipe(seed, 6, t.inputs["style"]), "samples": min(3, t.inputs["samples"])}
    return {"prompts": recipe(seed, count)}


def _preconditions(t: Trial, comparison: Comparison, draws: int) -> Iterator[Evidence]:
    yield t.precondition("compared draws", comparison.draws, ">=", draws)
    yield t.precondition("different prompt lengths", len(comparison.prompt_lengths), ">=", 3)
    yield t.precondition("rows that end early", comparison.early, ">=", 4)
    yield t.precondition("steps at which rows end", len(comparison.ends), ">=", 3)
    yield t.precondition("rows that never end", comparison.unended, ">=", 1)
    yield t.precondition("mean entropy of the naive path (nats)", comparison.mean_entropy, ">=", 1.0)


def claims(t: Trial, comparison: Comparison) -> Iterator[Evidence]:
    """Yield the claims of clauses 2, 6 and 10 of the definition."""
    t.facts["allowed"] = comparison.allowed
    yield t.number(
        "draws that did not use their keyed uniform", comparison.wrong_uniforms, "<=", where=comparison.first
    )
    yield t.number("largest |Δ log-softmax| between the paths", comparison.largest_error, "<=", where=comparison.first)
    yield t.number("unexplained differences", comparison.unexplained, "<=", where=comparison.first)
    explained = max(0, comparison.differences - comparison.unexplained)
    where = f"λ = {comparison.expected:.3g} over {comparison.draws} draws"
    yield t.number("explained differences", explained, "<=", where=where)
