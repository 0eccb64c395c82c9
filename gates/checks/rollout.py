"""Do fast rollouts give the tokens of the slow one, alone and in a batch, and stop where a row ends?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.checks import runs
from gates.checks.equivalence import Comparison
from gates.checks.ops import ROLLOUT, TOKEN_LOGITS
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate

DRAWS, QUICK_DRAWS = 100_000, 10_000  # clause 11: compared draws in a full and in a quick run
NOISE = "E = 8F, F the naive path's own float32 noise against float64 on other prompts and draws, measured in this run"

EQUIVALENCE_BOUNDS = {
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


CASES = (
    Case(
        "temperature-0",
        partial(runs.case_inputs, temperature=0.0, top_p=1.0, samples=1, count=500),
        quick=True,
        limit_s=60,
    ),
    Case(
        "temperature-0.7-top-p-0.95",
        partial(runs.case_inputs, temperature=0.7, top_p=0.95, samples=64, count=4),
        quick=True,
        limit_s=60,
    ),
)


@gate(
    "rollout.batched.equals-naive",
    name="rollout[batched]",
    question="Does the batched, cached rollout draw the tokens of one full forward per token?",
    why="Padding, positions, caches and compaction go wrong in ways that still read like language.",
    ops=(ROLLOUT, TOKEN_LOGITS),
    cases=CASES,
    bounds=EQUIVALENCE_BOUNDS,
    probes=(Probe("rollout", ("logits",), lambda inputs: inputs["path"] == "batched"),),
)
def batched_equals_naive(t: Trial) -> Iterator[Evidence]:
    """Compare both paths over ragged prompts and rows that end early, by the token-equivalence definition."""
    wanted = QUICK_DRAWS if t.quick else DRAWS
    yield from runs.calibrate(t)
    found = Comparison(t.facts["E"], runs.oracle_sampler(t.inputs["sampler"]))
    eos = runs.choose_eos(t)
    round_ = 0
    while found.draws < wanted and round_ < wanted // 200:
        changes = {"eos_ids": eos, "round_": round_, **_prompts(t, round_)}
        found.add(
            runs.rollout(t, "naive", **changes),
            runs.rollout(t, "batched", **changes),
            seed=t.inputs["seed"],
            round_=round_,
        )
        round_ += 1
        if found.unexplained and round_ > 1:
            break  # one round of each kind has been compared, and more would not unsay it
    yield from _signals(t, found, 1 if found.unexplained else wanted)
    yield from _claims(t, found)


def _prompts(t: Trial, round_: int) -> dict[str, Any]:
    """Return other prompts for each round: a few long and very ragged ones first, then many short ones."""
    seed, count = int(t.inputs["seed"]) + round_, t.inputs["prompts"].spec["count"]
    if round_ == 0:
        return {"prompts": runs.prompts(seed, 6, "worded"), "samples": min(3, t.inputs["samples"])}
    return {"prompts": runs.prompts(seed, count)}


def _signals(t: Trial, found: Comparison, draws: int) -> Iterator[Evidence]:
    yield t.signal("compared draws", found.draws, ">=", draws)
    yield t.signal("different prompt lengths", len(found.prompt_lengths), ">=", 3)
    yield t.signal("rows that end early", found.early, ">=", 4)
    yield t.signal("steps at which rows end", len(found.ends), ">=", 3)
    yield t.signal("rows that never end", found.unended, ">=", 1)
    yield t.signal("mean entropy of the naive path (nats)", found.mean_entropy, ">=", 1.0)


def _claims(t: Trial, found: Comparison) -> Iterator[Evidence]:
    t.facts["allowed"] = found.allowed
    yield t.number("draws that did not use their keyed uniform", found.wrong_uniforms, "<=", where=found.first)
    yield t.number("largest |Δ log-softmax| between the paths", found.largest_error, "<=", where=found.first)
    yield t.number("unexplained differences", found.unexplained, "<=", where=found.first)
    explained = max(0, found.differences - found.unexplained)
    where = f"λ = {found.expected:.3g} over {found.draws} draws"
    yield t.number("explained differences", explained, "<=", where=where)


@gate(
    "rollout.row-alone.equals-batch",
    name="rollout[one row]",
    question="Does a row alone draw the tokens that it draws in a batch?",
    why="Draws that depend on the batch make a run unrepeatable, and a resumed run another run.",
    ops=(ROLLOUT, TOKEN_LOGITS),
    cases=(
        Case(
            "temperature-0", partial(runs.case_inputs, temperature=0.0, top_p=1.0, samples=1, count=32, style="worded")
        ),
        Case(
            "temperature-0.7-top-p-0.95",
            partial(runs.case_inputs, temperature=0.7, top_p=0.95, samples=8, count=6, style="worded"),
            quick=True,
        ),
    ),
    bounds=EQUIVALENCE_BOUNDS,
    probes=(Probe("rollout", ("logits",), lambda inputs: inputs["rows"] is not None),),
)
def row_alone_equals_batch(t: Trial) -> Iterator[Evidence]:
    """Take every third row of a batch and roll it out alone, with the same keys."""
    yield from runs.calibrate(t)
    found = Comparison(t.facts["E"], runs.oracle_sampler(t.inputs["sampler"]))
    eos = runs.choose_eos(t)
    batch = runs.rollout(t, "batched", eos_ids=eos)
    picked = np.arange(0, len(batch["rows"]), 3)
    for index in picked:
        part = {name: np.asarray(batch[name])[index : index + 1] for name in PER_ROW}
        alone = runs.rollout(t, "batched", eos_ids=eos, rows=part["rows"])
        found.add(part, alone, seed=t.inputs["seed"], round_=0)
    slow = runs.rollout(t, "naive", eos_ids=eos, record_logits=False)
    yield t.signal("rows rolled out alone", picked.size, ">=", 8)
    yield t.signal("different prompt lengths", len({len(p) for p in slow["prompt_tokens"]}), ">=", 3)
    yield t.signal("different tokens drawn", np.unique(slow["tokens"][picked]).size, ">=", 8)
    yield t.signal("lengths of these rows", np.unique(slow["lengths"][picked]).size, ">=", 2)
    yield from _claims(t, found)


PER_ROW = ("rows", "tokens", "lengths", "ended", "logits", "uniforms")


def _ends(rng: np.random.Generator, path: str) -> dict[str, Any]:
    return {**runs.case_inputs(rng, temperature=1.0, top_p=1.0, samples=16, count=8), "path": path}


@gate(
    "rollout.rows.end-at-first-eos",
    name="rollout[ends]",
    question="Is a row's length the place of its first EOS plus one, and nothing drawn after it?",
    why="A finished row that goes on puts tokens nobody sampled into the loss and into every length statistic.",
    ops=(ROLLOUT,),
    cases=(
        Case("naive", partial(_ends, path="naive"), quick=True),
        Case("batched", partial(_ends, path="batched"), quick=True),
    ),
    bounds={
        "rows whose length is not the place of their first EOS plus one": Bound(
            "exact", "the mask includes the first EOS", 0
        ),
        "rows whose flag `ended` is wrong": Bound("exact", "ended means that an EOS was drawn", 0),
        "tokens after the end of a row": Bound("exact", "the rest of a row is padding, -1", 0),
    },
)
def rows_end_at_first_eos(t: Trial) -> Iterator[Evidence]:
    """Find the first EOS of every row from its tokens alone."""
    eos = runs.choose_eos(t)
    slow = runs.rollout(t, "naive", eos_ids=eos, record_logits=False)
    expected = _first_ends(slow, eos)
    yield t.signal("steps at which rows end", np.unique(expected[expected < runs.MAX_TOKENS]).size, ">=", 3)
    yield t.signal("rows that never end", int(np.sum(expected > runs.MAX_TOKENS)), ">=", 1)
    run = runs.rollout(t, t.inputs["path"], eos_ids=eos, record_logits=False)
    ends = _first_ends(run, eos)
    lengths, tokens = np.asarray(run["lengths"]), np.asarray(run["tokens"])
    wrong = lengths != np.minimum(ends, runs.MAX_TOKENS)
    at = int(np.argmax(wrong))
    where = f"row {at}: length {lengths[at]}, first EOS ends it at {ends[at]}" if wrong.any() else ""
    name = "rows whose length is not the place of their first EOS plus one"
    yield t.number(name, int(wrong.sum()), "<=", where=where)
    flags = np.asarray(run["ended"]) != (ends <= runs.MAX_TOKENS)
    yield t.number("rows whose flag `ended` is wrong", int(flags.sum()), "<=")
    after = np.arange(tokens.shape[1]) >= np.minimum(ends, tokens.shape[1])[:, None]
    yield t.number("tokens after the end of a row", int(np.sum(tokens[after] != -1)), "<=")


def _first_ends(run: Mapping[str, Any], eos: Array) -> Array:
    """Return for each row the number of tokens up to its first EOS; more than the limit where there is none."""
    hits = np.isin(run["tokens"], eos)
    return np.asarray(np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, runs.MAX_TOKENS + 1))
