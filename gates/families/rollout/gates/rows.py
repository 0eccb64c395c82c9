"""Do rows draw the same tokens alone and in a batch, and stop at their first EOS?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.equivalence import Comparison
from gates.families.rollout.gates import draws, long_rows, paths, quantised, settings, updates
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate

TOPICS = (
    paths,
    long_rows,
    draws,
    updates,
    quantised,
    settings,
)  # imported to register their gates


@gate(
    "rollout.row-alone.equals-batch",
    level="law",
    name="rollout[one row]",
    question="Does a row alone draw the tokens that it draws in a batch?",
    why="Draws that depend on the batch make a run unrepeatable, and a resumed run another run.",
    ops=(ROLLOUT, TOKEN_LOGITS),
    cases=(
        Case(
            "greedy",
            partial(runs.case_inputs, temperature=0.0, top_p=1.0, samples=1, count=64, style="worded"),
            sample=runs.SAMPLE,
        ),
        Case("sampled", runs.worded_inputs, proof=True, sample=runs.SAMPLE),
    ),
    bounds=paths.BOUNDS,
    probes=(Probe("rollout", ("logits",), lambda inputs: inputs["rows"] is not None),),
)
def row_alone_equals_batch(t: Trial) -> Iterator[Evidence]:
    """Roll out every third row of a batch alone, with the same keys."""
    yield from runs.calibrate(t)
    comparison = Comparison(t.facts["E"], t.inputs["sampler"])
    eos = runs.choose_eos(t)
    batch = runs.rollout(t, "batched", eos_ids=eos)
    picked = np.arange(0, len(batch["rows"]), 3)
    for index in picked:
        part = {name: np.asarray(batch[name])[index : index + 1] for name in runs.PER_ROW}
        alone = runs.rollout(t, "batched", eos_ids=eos, rows=part["rows"])
        comparison.add(part, alone, seed=t.inputs["seed"], round_=0)
    slow = runs.slow(t, eos_ids=eos, record_logits=False)
    yield t.precondition("rows rolled out alone", picked.size, ">=", 8)
    yield t.precondition("different prompt lengths", len({len(p) for p in slow["prompt_tokens"]}), ">=", 3)
    yield t.precondition("different tokens drawn", np.unique(slow["tokens"][picked]).size, ">=", 8)
    yield t.precondition("lengths of these rows", np.unique(slow["lengths"][picked]).size, ">=", 2)
    yield from paths.claims(t, comparison)


def _ends(rng: np.random.Generator, path: str) -> dict[str, Any]:
    return {**runs.case_inputs(rng, temperature=1.0, top_p=1.0, samples=16, count=8), "path": path}


@gate(
    "rollout.rows.end-at-first-eos",
    level="law",
    name="rollout[ends]",
    question="Is a row's length the place of its first EOS plus one, and nothing drawn after it?",
    why="A finished row that goes on puts tokens nobody sampled into the loss and into every length statistic.",
    ops=(ROLLOUT,),
    cases=tuple(
        Case(f"{path}-ends", partial(_ends, path=path), quick=path == "batched", proof=True, sample=runs.SAMPLE)
        for path in ("naive", *runs.PATHS)
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
    slow = runs.slow(t, eos_ids=eos, record_logits=False)
    expected = _first_ends(slow, eos)
    yield t.precondition("steps at which rows end", np.unique(expected[expected < runs.MAX_TOKENS]).size, ">=", 3)
    yield t.precondition("rows that never end", int(np.sum(expected > runs.MAX_TOKENS)), ">=", 1)
    run = runs.rollout(t, t.inputs["path"], eos_ids=eos, record_logits=False)
    ends = _first_ends(run, eos)
    lengths, tokens = np.asarray(run["lengths"]), np.asarray(run["tokens"])
    wrong = lengths != np.minimum(ends, runs.MAX_TOKENS)
    first = int(np.argmax(wrong))
    where = f"row {first}: length {lengths[first]}, first EOS ends it at {ends[first]}" if wrong.any() else ""
    name = "rows whose length is not the place of their first EOS plus one"
    yield t.number(name, int(wrong.sum()), "<=", where=where)
    flags = np.asarray(run["ended"]) != (ends <= runs.MAX_TOKENS)
    yield t.number("rows whose flag `ended` is wrong", int(flags.sum()), "<=")
    after = np.arange(tokens.shape[1]) >= np.minimum(ends, tokens.shape[1])[:, None]
    yield t.number("tokens after the end of a row", int(np.sum(tokens[after] != -1)), "<=")


def _first_ends(run: Mapping[str, Any], eos: Array) -> Array:
    """Return the number of tokens up to the first EOS of each row; more than the limit if there is none."""
    hits = np.isin(run["tokens"], eos)
    return np.asarray(np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, runs.MAX_TOKENS + 1))
