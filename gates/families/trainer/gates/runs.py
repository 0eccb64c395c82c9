"""Are whole training runs resumed bit by bit, trained on the sampled ids, and clipped against the sampling policy?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs
from gates.families.trainer.op import SAMPLED_AND_SCORED, TRAIN_RUN
from gates.model import Bound, Case, Evidence, Recipe, Trial
from gates.registry import gate

STEPS, EVERY, KILLED_AT = 6, 2, 5
SAME_BITS = "a resumed run is the same computation"


def _make(
    rng: np.random.Generator, *, samples: int = 4, tables: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    seed = int(rng.integers(1, 2**31))
    base: dict[str, dict[str, Any]] = {
        "adapter": {"rank": 4},
        "data": {"count": 12, "sums_seed": seed, "seed": seed},
        "rollout": {"samples_per_prompt": samples, "max_tokens": 8, "seed": seed},
        "algorithm": {"name": "grpo"},
        "optimizer": {"learning_rate": 1e-2},
        "loop": {"steps": STEPS, "prompts_per_step": 3},
        "rewards": {"functions": [{"name": "regex", "pattern": "[a-m]"}, {"name": "diversity"}]},
        "output": {"checkpoint_every_steps": EVERY, "completions_every_steps": 0, "console": False},
    }
    for section, keys in (tables or {}).items():
        base[section] = {**base[section], **keys}
    return {"model": runs.model(), "tables": base}


def _with(tables: Mapping[str, Any], section: str, **keys: Any) -> dict[str, Any]:
    return {**tables, section: {**tables[section], **keys}}


def _run(t: Trial, name: str, *, resume: bool = False, tables: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    return t.got(TRAIN_RUN, **_inputs(t, name, tables), resume=resume, kill_at_step=None)


def _inputs(t: Trial, name: str, tables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    model: Recipe = t.inputs["model"]
    return {"model": model, "tables": tables or t.inputs["tables"], "folder": str(t.folder / name)}


MUON: dict[str, dict[str, Any]] = {
    "optimizer": {"name": "muon", "schedule": "cosine", "warmup_steps": 2},
    "loop": {"iterations": 2, "minibatches": 2, "micro_batch_rows": 3},
}
DROPOUT: dict[str, dict[str, Any]] = {
    "adapter": {"dropout": 0.3},
    "loop": {"iterations": 2, "micro_batch_rows": 5},
}


@gate(
    "trainer.resume.bit-exact",
    level="law",
    name="train_run[resume]",
    question="Does a run that was killed and resumed end with the bits of one that was not?",
    why="A moment estimate or a draw's round that is lost on resume trains another model than the log says.",
    ops=(TRAIN_RUN,),
    cases=(
        Case("adam", _make, limit_s=60),
        Case("muon-cosine-two-passes", partial(_make, tables=MUON), limit_s=60),
        Case("dropout", partial(_make, tables=DROPOUT), proof=True, limit_s=60),
    ),
    bounds={
        "digests of the adapters that differ": Bound("exact", SAME_BITS, 0),
        "lines of the metrics that differ": Bound("exact", SAME_BITS, 0),
    },
)
def resume_is_bit_exact(t: Trial) -> Iterator[Evidence]:
    """Compare a run with one killed between two checkpoints and resumed; the control is another seed."""
    whole = _run(t, "whole")
    killed = t.call(TRAIN_RUN, **_inputs(t, "cut"), resume=False, kill_at_step=KILLED_AT)
    yield t.precondition("runs that were killed", float(killed.kind == "crashed"), "==", 1)
    saved = sorted((t.folder / "cut" / "checkpoints").glob("*"))
    yield t.precondition("checkpoints before the kill", len(saved), ">=", 1)
    resumed = _run(t, "cut", resume=True)
    moves = [json.loads(line)["gradient_norm"] for line in whole["metrics"].splitlines()]
    yield t.precondition("steps with a gradient", sum(isinstance(norm, float) and norm > 0 for norm in moves), ">=", 3)
    differs = int(resumed["digest"] != whole["digest"])
    yield t.number("digests of the adapters that differ", differs, "<=", where=resumed["digest"][:12])
    pairs = list(zip(whole["metrics"].splitlines(), resumed["metrics"].splitlines(), strict=False))
    differing = [n for n, pair in enumerate(pairs, 1) if pair[0] != pair[1]]
    missing = abs(len(whole["metrics"].splitlines()) - len(resumed["metrics"].splitlines()))
    where = f"step {differing[0]}" if differing else ""
    yield t.number("lines of the metrics that differ", len(differing) + missing, "<=", where=where)
    tables = _with(t.inputs["tables"], "rollout", seed=t.inputs["tables"]["rollout"]["seed"] + 1)
    moved = float(_run(t, "other", tables=tables)["digest"] != whole["digest"])
    yield t.negative_control(
        "digests that another seed changes", moved, "==", 1, "a digest that never moves proves nothing"
    )


@gate(
    "trainer.trains-on-sampled-ids",
    level="law",
    name="sampled_and_scored",
    question="Does the loss's forward pass read the very ids that were drawn?",
    why="Decoding and encoding again gives other ids for the same text: log-probs of tokens that nobody sampled.",
    ops=(SAMPLED_AND_SCORED,),
    cases=(Case("random-model", partial(_make, samples=16), quick=True, model="random-model"),),
    bounds={"tokens that differ": Bound("exact", "ids are carried, never made again", 0)},
)
def trains_on_sampled_ids(t: Trial) -> Iterator[Evidence]:
    """Compare id by id; a random model draws ids that a tokenizer would not choose for their text."""
    step = t.got(SAMPLED_AND_SCORED, **t.inputs)
    yield t.precondition("rows that encoding again would change", step["drifted"], ">=", 3)
    sampled, scored = step["sampled"], step["scored"]
    common = min(len(sampled), len(scored))
    differ = int(np.sum(sampled[:common] != scored[:common])) + abs(len(sampled) - len(scored))
    yield t.number("tokens that differ", differ, "<=", where=f"of {len(sampled)} tokens")


@gate(
    "trainer.clip-acts-after-the-first-update",
    level="law",
    name="train_run[clip]",
    question="From the second pass over a rollout on, does the clip act against the policy that drew it?",
    why="Old log-probs taken anew at each pass make every ratio 1: epsilon is inert and nothing holds the policy back.",
    ops=(TRAIN_RUN,),
    cases=(Case("two-passes", partial(_make, tables={"loop": {"iterations": 2, "steps": 2}}), quick=True, limit_s=60),),
    bounds={"widths of the clip that change nothing": Bound("exact", "after an update ratios leave 1 ± 1e-6", 0)},
)
def clip_acts_after_the_first_update(t: Trial) -> Iterator[Evidence]:
    """Train with a wide clip and with one of 1e-6; with a single pass over each rollout both runs must be equal."""

    def digest(name: str, width: float, iterations: int) -> str:
        settings = {"epsilon_low": width, "epsilon_high": width}
        tables = _with(t.inputs["tables"], "algorithm", settings=settings)
        return str(_run(t, name, tables=_with(tables, "loop", iterations=iterations))["digest"])

    same = int(digest("wide", 0.2, 2) == digest("narrow", 1e-6, 2))
    yield t.number("widths of the clip that change nothing", same, "<=")
    once = float(digest("wide-once", 0.2, 1) == digest("narrow-once", 1e-6, 1))
    yield t.negative_control(
        "the same widths with one pass give one run", once, "==", 1, "then every ratio is 1 by definition"
    )
