"""Does each setting of a rollout act on the tokens that it draws?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.equivalence import of_each_draw
from gates.families.rollout.op import ROLLOUT
from gates.model import Array, Bound, Case, Evidence, Trial
from gates.registry import gate
from gates_reference.oracle import sampling

SETTINGS: dict[str, Mapping[str, Any]] = {  # changes to a sampler at temperature 1 without filters
    "temperature": {"temperature": 0.25},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.2},
    "min_p": {"min_p": 0.5},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.02},
    "repetition_penalty": {"repetition_penalty": 4.0},
}
LEAST = 8  # of 128 rows, those whose first token the definition must change
SHARE = 0.5


def _make(rng: np.random.Generator, path: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    inputs = runs.case_inputs(rng, temperature=1.0, top_p=1.0, samples=16, count=8)
    return {**inputs, "path": path, "changes": dict(changes)}


@gate(
    "rollout.settings-act",
    level="law",
    name="rollout[settings]",
    question="Do temperature, top-k, top-p, min-p, XTC and the repetition penalty each change the tokens drawn?",
    why="A filter that is read, logged and never applied is tuned for weeks, and the samples are those without it.",
    ops=(ROLLOUT,),
    cases=tuple(
        Case(
            f"{name}-{path}",
            partial(_make, path=path, changes=changes),
            quick=path == "batched" and name == "top_p",
            proof=path == "batched",
            limit_s=60,
        )
        for path in ("naive", "batched", "compiled")
        for name, changes in SETTINGS.items()
    ),
    bounds={
        "rows whose first token changes, as a share of the definition's": Bound(
            "derived",
            "the same logits and the same keyed uniforms: the definition changes them all but for float32 noise at the "
            "edges of a token's interval, which is far below half of them",
            SHARE,
        ),
        "rows that change without a change of settings": Bound("exact", "draws are keyed", 0),
    },
)
def settings_act(t: Trial) -> Iterator[Evidence]:
    """Draw first tokens with the setting off, on, and off again; by the definition some rows must change."""
    x = t.inputs
    plain = _first(t, x["sampler"])
    rows = np.arange(len(plain["rows"]))
    sampler = {**x["sampler"], **x["changes"]}
    choice = of_each_draw(sampler, plain, rows, np.zeros_like(rows), x["seed"], 0)
    left = sampling.filtered_logprobs(np.asarray(plain["logits"])[:, 0], **choice)
    keys = np.asarray(plain["rows"]).astype(np.int64)
    want = sampling.draw(left, sampling.uniforms(x["seed"], 0, keys[:, 0], keys[:, 1], np.zeros_like(rows)))
    tokens = _tokens(plain)
    must = want != tokens
    yield t.precondition("rows that the definition changes", int(must.sum()), ">=", LEAST)
    again = _tokens(_first(t, x["sampler"]))
    yield t.number("rows that change without a change of settings", int(np.sum(again != tokens)), "<=")
    moved = _tokens(_first(t, sampler))[must] != tokens[must]
    quantity = "rows whose first token changes, as a share of the definition's"
    yield t.number(quantity, float(moved.mean()), ">=", where=str(x["changes"]))


def _first(t: Trial, sampler: Mapping[str, Any]) -> dict[str, Any]:
    return runs.rollout(t, t.inputs["path"], max_tokens=1, **sampler)


def _tokens(run: Mapping[str, Any]) -> Array:
    return np.asarray(run["tokens"])[:, 0]
