"""Do rows equal those of the slow path when caches and buffers grow?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.equivalence import Comparison
from gates.families.rollout.gates import paths
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.model import Case, Evidence, Probe, Trial
from gates.registry import gate

TOKENS = 280  # beyond 256 columns, the step by which caches of mlx-lm grow
COLUMNS = 257


def _make(rng: np.random.Generator, path: str) -> dict[str, Any]:
    return {**runs.case_inputs(rng, temperature=1.0, top_p=1.0, samples=1, count=2), "path": path}


@gate(
    "rollout.long-rows.equal-naive",
    level="law",
    name="rollout[long rows]",
    question="Do rows of 280 tokens, longer than what a cache has room for at first, draw the tokens of full forwards?",
    why="Columns that are lost or moved when a buffer grows are the start of the prompt: the answer forgets its question.",
    ops=(ROLLOUT, TOKEN_LOGITS),
    cases=tuple(
        Case(f"{path}-{TOKENS}", partial(_make, path=path), proof=path == "compiled", limit_s=120.0, sample=runs.SAMPLE)
        for path in runs.PATHS
    ),
    bounds=paths.BOUNDS,
    probes=(Probe("rollout", ("logits",), lambda inputs: inputs["path"] != "naive"),),
)
def long_rows_equal_naive(t: Trial) -> Iterator[Evidence]:
    """Compare two rows without an EOS draw by draw, like shorter rows."""
    yield from runs.calibrate(t)
    comparison = Comparison(t.facts["E"], t.inputs["sampler"])
    slow = runs.slow(t, max_tokens=TOKENS)
    fast = runs.rollout(t, t.inputs["path"], max_tokens=TOKENS)
    comparison.add(slow, fast, seed=t.inputs["seed"], round_=0, noise=partial(runs.own_noise, t, slow))
    longest = max(len(p) + int(n) for p, n in zip(runs.row_prompts(slow), slow["lengths"], strict=True))
    yield t.precondition("columns of the longest row", longest, ">=", COLUMNS)
    yield t.precondition("compared draws", comparison.draws, ">=", 1 if comparison.unexplained else TOKENS)
    yield t.precondition("mean entropy of the naive path (nats)", comparison.mean_entropy, ">=", 1.0)
    yield from paths.claims(t, comparison)
