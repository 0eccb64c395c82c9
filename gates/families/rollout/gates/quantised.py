"""Is sampling with quantised keys and values close to the model, and is each token right for its own logits?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.equivalence import ETA_FLOAT64_SAMPLER, of_each_draw
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.families.scoring.op import COMPLETION_LOGPROBS
from gates.model import Array, Bound, Case, Evidence, Probe, Recipe, Trial
from gates.registry import gate
from gates_reference.oracle import sampling

TOKENS = 96
QUANTISER = (
    "twice the largest over ten seeds with mlx-lm's own quantiser; not the largest of all draws, whose tail over seeds is as "
    "long as the step to fewer bits. It holds on every backend: what the bits lose is a thousand times the noise of float32"
)


class Limit(NamedTuple):
    """A limit between the largest value over seeds 0 to 9 and the smallest of `rollout.kv-in-fewer-bits`."""

    noise: float  # `gates calibrate rollout.quantised --seeds 10`, the larger of MLX's own BLAS and OpenBLAS
    limit: float
    effect: float  # `gates prove rollout.quantised --full`


# A limit on the mean alone would let 8 bits pass for exact: their mean ratio is 1.015, their sequences' are 0.6 to 1.8.
LIMITS: Mapping[str, Mapping[int, Limit]] = {  # of each claim and number of bits
    "p99 |log ratio|": {8: Limit(0.0838, 0.168, 6.14), 4: Limit(1.56, 3.1, 6.18)},
    "mean exp|log ratio| - 1": {8: Limit(0.0161, 0.0321, 33.6), 4: Limit(0.501, 1.01, 33.4)},
    "median |log ratio| of a sequence": {8: Limit(0.217, 0.422, 91.5), 4: Limit(7.78, 15.6, 98.6)},
}


def _limit(claim: str, t: Trial) -> float:
    return LIMITS[claim][t.inputs["kv_bits"]].limit


def _make(rng: np.random.Generator, bits: int) -> dict[str, Any]:
    inputs = runs.case_inputs(rng, temperature=1.0, top_p=1.0, samples=4, count=8)
    wide = {"seed": 11, "vocab": 272, "head_dim": 32, "heads": 2, "kv_heads": 1}  # 32 columns share a scale
    return {**inputs, "model": Recipe("model", wide), "kv_bits": bits}


@gate(
    "rollout.quantised.within-ratio",
    level="law",
    name="rollout[quantised KV]",
    question="With keys and values in 8 or 4 bits, is every token right for its own logits, and the policy near the model's?",
    why="Sampling bears the error, a ratio's denominator does not: its tail and its sequences give it away, not its mean.",
    ops=(ROLLOUT, TOKEN_LOGITS, COMPLETION_LOGPROBS),
    cases=(
        Case("8-bit", partial(_make, bits=8), limit_s=60),
        Case("4-bit", partial(_make, bits=4), proof=True, limit_s=60),
    ),
    bounds={
        "tokens that are wrong for their own logits": Bound("exact", "token equivalence, clauses 3 and 12", 0),
        "unquantised: largest |log ratio|": Bound(
            "calibrated", "E = 8F, the naive path's own noise, in this run", lambda t: t.facts["E"]
        ),
        **{claim: Bound("calibrated", QUANTISER, partial(_limit, claim)) for claim in LIMITS},
    },
    probes=(Probe("rollout", ("model_logprobs",), lambda inputs: inputs["kv_bits"] is not None),),
)
def quantised_within_ratio(t: Trial) -> Iterator[Evidence]:
    """Score rows of 96 tokens by the full forward, so that later tokens show the effect of the stored caches."""
    yield from runs.calibrate(t)
    run = runs.rollout(t, "prefix", kv_bits=int(t.inputs["kv_bits"]), max_tokens=TOKENS)
    logits, tokens = np.asarray(run["logits"]), np.asarray(run["tokens"])
    row, step = np.nonzero(tokens >= 0)
    choice = of_each_draw(t.inputs["sampler"], run, row, step, t.inputs["seed"], 0)
    keys = np.asarray(run["rows"])[row].astype(np.int64)
    uniforms = sampling.uniforms(t.inputs["seed"], 0, keys[:, 0], keys[:, 1], step)
    right = sampling.admissible(tokens[row, step], logits[row, step], uniforms, ETA_FLOAT64_SAMPLER, **choice)
    yield t.precondition("scored tokens", len(row), ">=", 2_000)
    yield t.number("tokens that are wrong for their own logits", float((~right).sum()), "<=")
    exact = runs.rollout(t, "prefix", max_tokens=TOKENS)
    plain = np.abs(_log_ratios(t, exact)).max()
    yield t.number("unquantised: largest |log ratio|", float(plain), "<=")
    apart = _log_ratios(t, run)
    yield t.negative_control(
        "quantised: largest |log ratio|", float(np.abs(apart).max()), ">", t.facts["E"], "the bits act"
    )
    statistics = {
        "p99 |log ratio|": float(np.quantile(np.abs(apart), 0.99)),
        "mean exp|log ratio| - 1": float(np.expm1(np.abs(apart)).mean()),
        "median |log ratio| of a sequence": float(np.median(np.abs(apart.sum(axis=1)))),
    }
    for name, value in statistics.items():
        yield t.number(name, value, "<=")


def _log_ratios(t: Trial, run: dict[str, Any]) -> Array:
    """Return the full forward's log-prob minus the recorded one (R, T), of rows of full length."""
    full = t.got(COMPLETION_LOGPROBS, **runs.scoring_batch(t, run), temperature=1.0, adapter=None, adapters_on=True)
    return np.asarray(full["logprobs"] - run["model_logprobs"])
