"""Do special cases of one loss reduce to another loss, as their definitions say?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.loss import calls, cases, choosing, laws
from gates.families.loss.op import POLICY_LOSS
from gates.model import Case, Evidence, Probe, Trial, Wire
from gates.registry import gate
from gates_reference.algorithms import ALGORITHMS, taking

Inputs = dict[str, Any]
Make = Callable[[np.random.Generator], Mapping[str, Any]]
LIKE_TOKENS: dict[str, Any] = {"epsilon_low": 0.2, "epsilon_high": 0.2}
MARK = {"beta": -0.0}  # equals 0, and marks the second call for the probe
OPEN: dict[str, Any] = {"epsilon_low": 0.999, "epsilon_high": 1e6}  # bounds that no ratio of a case reaches


def _as(call: Mapping[str, Any], algorithm: str, **changes: Any) -> Inputs:
    """Return the same data for another algorithm with its constants."""
    return {**call, **calls.WHOLE, **ALGORITHMS[algorithm].constants, "algorithm": algorithm, **changes}


def _data(rng: np.random.Generator, algorithm: str, changes: Mapping[str, Any], **data: Any) -> Inputs:
    spread = {"spread": 0.1} if ALGORITHMS[algorithm].ratio_level == "seq_sum" else {}
    return calls.make(rng, algorithm, {**spread, **data}, changes)


def _micro_batches(rng: np.random.Generator) -> Mapping[str, Any]:
    left = _data(rng, "dapo", LIKE_TOKENS)
    right = _as(left, "bnpo-trl", micro_batches=[len(left["mask"])])
    return {"left": left, "right": right, "broken": {"right": {"micro_batches": [3, 5]}}}


def _of_rows(rng: np.random.Generator) -> Mapping[str, Any]:
    left = _data(rng, "gspo-token", {}, rows=24)
    varied = left["advantages"][:, None] * np.where(np.arange(left["mask"].shape[1]) % 2, 0.5, 1.5)
    broken = {"left": {"advantages": varied.astype(np.float32)}}
    return {"left": left, "right": _as(left, "gspo"), "broken": broken}


def _one_token(rng: np.random.Generator, algorithm: str, other: str, clip: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return completions of one token; broken, whole completions."""
    own = clip if ALGORITHMS[algorithm].bound == "clip" else {}
    whole = _data(rng, algorithm, own)
    first = np.zeros_like(whole["mask"])
    first[:, 0] = True
    left = {**whole, "mask": first}
    longer = {"mask": whole["mask"]}
    return {"left": left, "right": _as(left, other, **clip), "broken": {"left": longer, "right": longer}}


def _equal_lengths(rng: np.random.Generator, algorithm: str) -> Mapping[str, Any]:
    """Return completions of equal length, that of L_max; broken, of different lengths."""
    changes: dict[str, Any] = {"max_length": 16} if algorithm == "dr_grpo" else LIKE_TOKENS
    left = _data(rng, algorithm, changes, equal_lengths=True)
    ragged = {"mask": np.arange(16) < np.array([3, 16, 5, 9, 16, 2, 12, 7])[:, None]}
    return {"left": left, "right": _as(left, "grpo"), "broken": {"left": ragged, "right": ragged}}


def _one_prompt(rng: np.random.Generator, algorithm: str) -> Mapping[str, Any]:
    right = _data(rng, algorithm, {})
    left = {**right, "dapo_denominator": "group", "group_size": len(right["mask"])}
    return {"left": left, "right": right, "broken": {"left": {"group_size": 4}}}


def _own_window(rng: np.random.Generator, algorithm: str) -> Mapping[str, Any]:
    right = _data(rng, algorithm, {})
    tokens = float(right["mask"].sum())
    left = {**right, "dapo_denominator": "trl", "tokens_in_step": tokens}
    return {"left": left, "right": right, "broken": {"left": {"tokens_in_step": 1.5 * tokens}}}


def _far_delta(rng: np.random.Generator, algorithm: str) -> Mapping[str, Any]:
    wide = {"rows": 24, "spread": 0.6}
    right = _data(rng, algorithm, {}, **wide)
    return {
        "left": {**right, "delta": 1e6},
        "right": right,
        "broken": {"left": {"delta": calls.tight_delta(algorithm)}},
    }


def _no_kl(rng: np.random.Generator, algorithm: str) -> Mapping[str, Any]:
    left = _data(rng, algorithm, {"beta": 0.3})
    without = {**left, "beta": 0.0}
    return {"left": without, "right": {**without, "reference": None}, "broken": {"left": {"beta": 0.3}}}


def _weights_of_one(rng: np.random.Generator, algorithm: str) -> Mapping[str, Any]:
    right = _data(rng, algorithm, {})
    halves = np.where(np.arange(len(right["mask"])) % 2, 0.5, 1.0).astype(np.float32)
    return {
        "left": {**right, "weights": np.ones_like(halves)},
        "right": right,
        "broken": {"left": {"weights": halves}},
    }


def _same_slope(rng: np.random.Generator, algorithm: str, other: str) -> Mapping[str, Any]:
    """Return an on-policy step, on which both losses have the same gradient; broken, an off-policy step."""
    call = _data(rng, algorithm, {})
    left = {**call, "old": None}
    off = {"old": call["old"]}
    return {
        "left": left,
        "right": _as(left, other),
        "with_loss": False,
        "broken": {"left": off, "right": off},
    }


def _case(
    name: str,
    algorithm: str,
    make: Make,
    *,
    proof: bool = True,
    ratio: Wire = None,
    other: str = "",
    **changes: Any,
) -> Case:
    """Return a case that is not asked if the definition of the `other` algorithm does not hold."""

    def marked(rng: np.random.Generator) -> Mapping[str, Any]:
        pair = dict(make(rng))
        return {**pair, "right": {**pair["right"], **MARK}}

    conventions = dict(cases.case(algorithm, name, **changes).conventions)
    quick = proof and not ratio
    asked = {**conventions, **({"ratio": ratio} if ratio else {})}
    rests_on = (f"policy_loss[{other}]",) if other else ()
    return Case(name, marked, quick=quick, proof=proof, conventions=asked, rests_on=rests_on)


def _cases() -> Iterator[Case]:
    yield _case("dapo-in-one-micro-batch-is-bnpo-trl", "dapo", _micro_batches, other="bnpo-trl")
    yield _case("gspo-token-of-rows-is-gspo", "gspo-token", _of_rows, other="gspo")
    for algorithm, other, clip in (
        ("gspo", "grpo", LIKE_TOKENS),
        ("luspo", "gspo", LIKE_TOKENS),
        ("rloo", "grpo", OPEN),
    ):
        make = partial(_one_token, algorithm=algorithm, other=other, clip=clip)
        yield _case(f"{algorithm}-of-one-token-is-{other}", algorithm, make, other=other)
    for algorithm in ("dr_grpo", "dapo"):
        make = partial(_equal_lengths, algorithm=algorithm)
        yield _case(f"{algorithm}-of-equal-lengths-is-grpo", algorithm, make, other="grpo")
    for algorithm in taking("dapo_denominator"):
        yield _case(f"{algorithm}-of-one-prompt-is-global", algorithm, partial(_one_prompt, algorithm=algorithm))
        yield _case(f"{algorithm}-of-its-own-window-is-global", algorithm, partial(_own_window, algorithm=algorithm))
    for algorithm in ("grpo", "gspo"):
        yield _case(f"{algorithm}-delta-beyond-every-ratio", algorithm, partial(_far_delta, algorithm=algorithm))
    for algorithm in ("grpo", "gspo", "gmpo"):
        proof, make = algorithm != "gspo", partial(_no_kl, algorithm=algorithm)
        yield _case(f"{algorithm}-beta-0", algorithm, make, proof=proof, beta=0.3)
    for algorithm in ("grpo", "gmpo", "cispo"):
        proof, make = algorithm != "cispo", partial(_weights_of_one, algorithm=algorithm)
        yield _case(f"{algorithm}-weights-1", algorithm, make, proof=proof, weights="row")
    for algorithm, other in (("sapo", "grpo"), ("gspo", "grpo"), ("gmpo", "gspo"), ("cispo", "dapo")):
        make = partial(_same_slope, algorithm=algorithm, other=other)
        yield _case(
            f"{algorithm}-on-policy-has-the-slope-of-{other}", algorithm, make, ratio=choosing.BOTH_RATIOS, other=other
        )


@gate(
    "loss.reductions.hold",
    level="law",
    name="policy_loss[reductions]",
    question="Do special cases reduce: one micro-batch, one token, equal lengths, one prompt, δ = ∞, β = 0, weights of 1, on-policy?",
    why="Two code paths for one formula drift apart; where they meet, a default that was slipped in shows.",
    ops=(POLICY_LOSS,),
    cases=tuple(_cases()),
    bounds=laws.BOUNDS,
    requires=laws.preconditions,
    probes=(Probe("policy_loss", ("loss", "gradient"), lambda inputs: math.copysign(1.0, inputs["beta"]) < 0),),
)
def reductions_hold(t: Trial) -> Iterator[Evidence]:
    """Compare loss and gradient of both sides, which must differ once the condition is broken."""
    yield from laws.hold(t)
