"""Is the importance ratio 1 on a fresh batch, and right after the adapter changed?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families.ratio.op import IMPORTANCE_RATIOS
from gates.families.rollout import runs
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.families.scoring.op import COMPLETION_LOGPROBS
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import logprobs

BEFORE = {"rank": 4, "scale": 2.0, "seed": 5, "b_std": 0.05}
AFTER = {"rank": 4, "scale": 2.0, "seed": 6, "b_std": 0.1}
BOUNDS = {
    "|log ratio| of a fresh batch": Bound(
        "calibrated", f"{runs.NOISE}; two log-probs, one error each", lambda t: t.facts["E"]
    ),
    "log ratio after the change": Bound(
        "calibrated", f"{runs.NOISE}; two log-probs, one error each", lambda t: t.facts["E"]
    ),
    "cached-decode log-probs": Bound("calibrated", runs.NOISE, lambda t: t.facts["E"]),
}


_make = partial(runs.case_inputs, temperature=0.7, top_p=0.95, samples=4, count=12)

CASES = (
    Case("float32", partial(_make, bits=32), quick=True, model="float32"),
    Case("4-bit", partial(_make, bits=4), proof=True, model="4-bit"),
)


@gate(
    "ratio.fresh-batch-is-one",
    name="importance_ratios",
    level="law",
    question="Does a full-forward recompute on a fresh batch give ratios of 1, and exp(Δlp) after the adapter changed?",
    why="A ratio that is not 1 on a fresh batch is off-policy by mistake; one that is always 1 makes every clip inert.",
    ops=(ROLLOUT, TOKEN_LOGITS, COMPLETION_LOGPROBS, IMPORTANCE_RATIOS),
    cases=CASES,
    bounds=BOUNDS,
    probes=(Probe("importance_ratios", ("ratios",)),),
)
def fresh_batch_is_one(t: Trial) -> Iterator[Evidence]:
    """Recompute ratios with the adapter that sampled, then with another whose log-probs are known in float64."""
    yield from runs.calibrate(t, AFTER)
    run = runs.rollout(t, "batched", adapter=BEFORE)
    batch = {**runs.scoring_batch(t, run), "temperature": 1.0}
    inside = np.arange(run["tokens"].shape[1]) < run["lengths"][:, None]
    old = t.got(COMPLETION_LOGPROBS, **batch, adapter=BEFORE, adapters_on=True)["logprobs"]
    fresh = t.got(IMPORTANCE_RATIOS, **batch, adapter=BEFORE, old=old)["ratios"]
    change = np.where(inside, _exact(t, run, AFTER) - _exact(t, run, BEFORE), 0.0)
    yield t.precondition("largest |Δlp| of the adapter change", np.abs(change).max(), ">=", 0.05)
    yield t.within("|log ratio| of a fresh batch", _log(fresh, inside), np.zeros(inside.shape))
    moved = t.got(IMPORTANCE_RATIOS, **batch, adapter=AFTER, old=old)["ratios"]
    yield t.within("log ratio after the change", _log(moved, inside), change, role="control")


@gate(
    "ratio.cached-decode.within-bound",
    name="rollout[log-probs]",
    level="law",
    question="Are the log-probs that the cached decode recorded those of a full forward, within the numeric noise?",
    why="Stored rollout log-probs enter a ratio's denominator: an error there is a bias in every update.",
    ops=(ROLLOUT, TOKEN_LOGITS, COMPLETION_LOGPROBS),
    cases=CASES,
    bounds=BOUNDS,
    probes=(Probe("rollout", ("model_logprobs",), lambda inputs: inputs["path"] == "batched"),),
)
def cached_decode_within_bound(t: Trial) -> Iterator[Evidence]:
    """Compare the decode's model log-probs with those of the full forward, on tokens drawn at temperature 0.7."""
    yield from runs.calibrate(t)
    run = runs.rollout(t, "batched", eos_ids=runs.choose_eos(t))
    inside = np.arange(run["tokens"].shape[1]) < run["lengths"][:, None]
    full = t.got(COMPLETION_LOGPROBS, **runs.scoring_batch(t, run), temperature=1.0, adapter=None, adapters_on=True)[
        "logprobs"
    ]
    yield t.precondition("scored tokens", int(inside.sum()), ">=", 100)
    exact = _exact(t, run, None)[inside]
    yield t.precondition("mean |log-prob| in float64", float(np.abs(exact).mean()), ">=", 0.3)
    yield t.within("cached-decode log-probs", np.where(inside, run["model_logprobs"], 0.0), np.where(inside, full, 0.0))


def _exact(t: Trial, run: dict[str, Any], adapter: dict[str, Any] | None) -> np.ndarray[Any, Any]:
    logits = t.got(TOKEN_LOGITS, **runs.scoring_batch(t, run), dtype="float64", adapter=adapter)["logits"]
    ids = np.maximum(run["tokens"], 0)
    return np.asarray(logprobs.selective_log_softmax(logits, ids, temperature=1.0))


def _log(ratios: np.ndarray[Any, Any], inside: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(inside, np.log(ratios.astype(np.float64)), 0.0)
