"""Do sampling and scoring agree at one temperature?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.families.scoring.op import COMPLETION_LOGPROBS
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate


@gate(
    "ratio.sampler-and-scorer-agree",
    name="completion_logprobs[sampled]",
    level="law",
    question="Are the sampler's tempered log-probs those that scoring gives the same tokens at the same temperature?",
    why="Sampled at one temperature and scored at another, every importance ratio is off before the first update.",
    ops=(ROLLOUT, TOKEN_LOGITS, COMPLETION_LOGPROBS),
    cases=tuple(
        Case(
            f"{path}-{temperature}",
            partial(runs.worded_inputs, temperature=temperature, path=path),
            quick=path == "batched" and temperature < 1,
            limit_s=120,
            sample="ratio/agreement",
        )
        for temperature in (0.7, 1.4)
        for path in ("naive", *runs.PATHS)
    ),
    bounds={
        "|Δ log-prob| of sampler and scorer": Bound(
            "calibrated",
            f"{runs.NOISE}; over τ, one error of each side, a rounding of each in float32 among them",
            lambda t: 2 * t.facts["E"] / float(t.inputs["sampler"]["temperature"]),
        )
    },
    probes=(Probe("completion_logprobs", ("logprobs",), lambda inputs: inputs["temperature"] != 1.0),),
)
def sampler_and_scorer_agree(t: Trial) -> Iterator[Evidence]:
    """Roll out with a filter that must not affect the log-probs, and score; at temperature 1 they must differ."""
    yield from runs.calibrate(t, runs.ADAPTER)
    run = runs.rollout(
        t, t.inputs["path"], adapter=runs.ADAPTER, eos_ids=runs.choose_eos(t, runs.ADAPTER), record_logits=False
    )
    inside = np.arange(run["tokens"].shape[1]) < np.asarray(run["lengths"])[:, None]
    yield t.precondition("scored tokens", int(inside.sum()), ">=", 60)
    yield t.precondition("different lengths of prompts", len({len(p) for p in runs.row_prompts(run)}), ">=", 2)
    batch = {**runs.scoring_batch(t, run), "adapter": runs.ADAPTER, "adapters_on": True}
    sampled = np.where(inside, run["tempered_logprobs"], 0.0)
    tau = float(t.inputs["sampler"]["temperature"])
    scored = t.got(COMPLETION_LOGPROBS, **batch, temperature=tau)["logprobs"]
    yield t.within("|Δ log-prob| of sampler and scorer", scored, sampled)
    untempered = t.got(COMPLETION_LOGPROBS, **batch, temperature=1.0)["logprobs"]
    moved = float(np.abs(np.where(inside, untempered, 0.0) - sampled).max())
    yield t.negative_control(
        "the same with tokens scored at 1", moved, ">=", 0.2, "a distance that never moves proves nothing"
    )
