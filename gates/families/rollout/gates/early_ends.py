"""Does a rollout end with its rows, or only at its limit?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.op import ROLLOUT
from gates.model import Bound, Case, Evidence, SubjectFaultError, Trial
from gates.registry import gate

LONG = 96  # tokens of a row without an EOS
REPEATS = 3  # most calls of each kind; the fastest counts, because other processes slow calls down
SHARE = 0.5


def _make(rng: np.random.Generator, path: str) -> dict[str, Any]:
    inputs = runs.case_inputs(rng, temperature=1.0, top_p=1.0, samples=4, count=4)
    return {**inputs, "path": path}


@gate(
    "rollout.early-ends-save-time",
    level="law",
    name="rollout[early ends]",
    question="Is a rollout in which every row ends within two tokens done in less than half the time of one of 96 tokens?",
    why="A loop that runs to max_tokens whatever has ended pays for the longest answer at every step of training.",
    ops=(ROLLOUT,),
    cases=tuple(
        Case(path, partial(_make, path=path), quick=path == "batched", limit_s=120) for path in ("naive", *runs.PATHS)
    ),
    bounds={
        "time of rows that end at once, as a share": Bound(
            "derived",
            "2 of 96 steps are 2% of the steps; prefill and call may double and redouble that, never make it a half",
            SHARE,
        ),
        "tokens after the second": Bound("exact", "every id ends a row, so the first token does", 0),
    },
)
def early_ends_save_time(t: Trial) -> Iterator[Evidence]:
    """Time calls in which every id is an EOS against calls without one, after one warm-up call of each."""
    vocabulary = int(t.inputs["model"].spec.get("vocab", 0)) or 2**18
    ends, none = np.arange(vocabulary), np.zeros(0, np.int64)
    keywords: dict[str, Any] = {"max_tokens": LONG, "record_logits": False}
    short = runs.rollout(t, t.inputs["path"], eos_ids=ends, **keywords)
    full = runs.rollout(t, t.inputs["path"], eos_ids=none, **keywords)
    yield t.precondition("tokens of the rows that nothing ends", int(np.min(full["lengths"])), "==", LONG)
    yield t.number("tokens after the second", int(np.sum(np.asarray(short["lengths"]) > 2)), "<=")
    quick = slow = np.inf
    for _ in range(REPEATS):
        quick, slow = (min(best, _seconds(t, eos, keywords)) for best, eos in ((quick, ends), (slow, none)))
        if quick <= SHARE / 4 * slow:  # far enough below the limit
            break
    where = f"{1e3 * quick:.3g} ms and {1e3 * slow:.3g} ms"
    yield t.number("time of rows that end at once, as a share", quick / slow, "<=", where=where)


def _seconds(t: Trial, eos_ids: Any, keywords: dict[str, Any]) -> float:
    outcome = t.call(ROLLOUT, **runs.arguments(t, t.inputs["path"], eos_ids=eos_ids, **keywords))
    if outcome.kind != "value":
        raise SubjectFaultError(outcome.kind, f"rollout {outcome.kind}: {outcome.error}")
    return outcome.seconds
