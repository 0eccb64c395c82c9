"""Does a rollout after a weight update use the new weights, on every path?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.equivalence import Comparison
from gates.families.rollout.gates import paths
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.model import Array, Case, Evidence, Probe, Trial
from gates.registry import gate

BEFORE = {"rank": 4, "scale": 2.0, "seed": 5, "b_std": 0.05}
AFTER = {"rank": 4, "scale": 2.0, "seed": 6, "b_std": 0.05}


def _make(rng: np.random.Generator, path: str) -> dict[str, object]:
    inputs = runs.case_inputs(rng, temperature=0.9, top_p=1.0, samples=4, count=8, style="worded")
    return {**inputs, "path": path}


@gate(
    "rollout.update.reaches-every-path",
    level="law",
    name="rollout[after an update]",
    question="After the weights changed in place, does the next rollout use the new ones, in every cache and compiled step?",
    why="A stale cache gives fluent text of an older policy: every ratio is wrong, and no loss curve says so.",
    ops=(ROLLOUT, TOKEN_LOGITS),
    cases=tuple(
        Case(
            f"{path}-updated",
            partial(_make, path=path),
            quick=path == "batched",
            proof=True,
            limit_s=60,
            sample=runs.SAMPLE,
        )
        for path in runs.PATHS
    ),
    bounds=paths.BOUNDS,
    probes=(Probe("rollout", ("logits",), lambda inputs: inputs["before"] is not None),),
)
def update_reaches_every_path(t: Trial) -> Iterator[Evidence]:
    """Roll out twice in one process with an update in between, and compare the second with the naive path."""
    yield from runs.calibrate(t, AFTER)
    comparison = Comparison(t.facts["E"], t.inputs["sampler"])
    old = runs.slow(t, adapter=BEFORE)
    slow = runs.slow(t, adapter=AFTER)
    fast = runs.rollout(t, t.inputs["path"], adapter=AFTER, before=BEFORE)
    comparison.add(slow, fast, seed=t.inputs["seed"], round_=0, noise=partial(runs.own_noise, t, slow, AFTER))
    yield t.precondition("share of rows that the update changes", _changed(old["tokens"], slow["tokens"]), ">=", 0.5)
    yield t.precondition("compared draws", comparison.draws, ">=", 1 if comparison.unexplained else 200)
    yield from paths.claims(t, comparison)


def _changed(old: Array, new: Array) -> float:
    return float(np.mean((np.asarray(old) != np.asarray(new)).any(axis=1)))
