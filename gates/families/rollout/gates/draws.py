"""Do the draws of a rollout have the requested distribution, and are the recorded log-probs right?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs, textbook
from gates.families.rollout.equivalence import of_each_draw
from gates.families.rollout.gates import paths
from gates.families.rollout.op import ROLLOUT
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import logprobs, sampling

DRAWS = 100_000
ROUND = 2_500  # rows of one call, so that its caches stay below 100 MB
EXPECTED = 8.0  # least expected draws of a bin of the chi-square; rarer tokens share one bin
SIGMAS = 5.0  # a chance of 3e-7 for an honest sampler
UNIT = 2.0**-24  # of float32, in which every path may score
ACCURACY = Bound("derived", "k·2u·S with S = |x - M|/τ + max(1, log Σ) and k = 4 for float32", 4.0, level="precision")
CUT = 2.0**-16  # relative effect of float32 sums over 272 tokens on the threshold of a filter
THRESHOLDS = ("top_p", "min_p", "xtc_threshold")
CHOICES: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0, "top_p": 1.0},
    "top-p": {"temperature": 0.8, "top_p": 0.95},  # at least 17 bins on 600 prompts; with 0.7 and 0.9 one had 3
    "hf-filters": paths.FILTERS["hf-filters"] | {"top_p": 0.9, "top_k": 40},
    "mlx-lm-filters": paths.FILTERS["mlx-lm-filters"] | {"top_p": 0.9, "top_k": 40},
}


def _make(rng: np.random.Generator, choice: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return runs.case_inputs(rng, **{"samples": ROUND, "count": 1, **choice, **changes})


@gate(
    "rollout.draws.follow-distribution",
    level="law",
    name="rollout[distribution]",
    question="Do 10⁵ first tokens of one prompt have the filtered distribution, by a chi-square test?",
    why="A draw may be right for its uniform and the uniforms wrong: reused, coarse or correlated.",
    ops=(ROLLOUT,),
    cases=tuple(
        Case(name, partial(_make, choice=choice), quick=name == "plain", proof=name == "hf-filters", limit_s=60)
        for name, choice in CHOICES.items()
    ),
    bounds={
        "chi-square of the draws, in standard deviations": Bound(
            "derived",
            f"{SIGMAS} standard deviations of an honest sampler's (χ²/df)^⅓, which is nearly normal (Wilson and Hilferty 1931)",
            SIGMAS,
        ),
        "draws of probability 0": Bound("exact", "a filtered token is never drawn", 0),
    },
    probes=(Probe("rollout", ("tokens",)),),
)
def draws_follow_distribution(t: Trial) -> Iterator[Evidence]:
    """Count the tokens over rounds; with XTC the expectation follows the coins of the draws."""
    expected: Array | None = None
    counts: Array | None = None
    for round_ in range(DRAWS // ROUND):
        run = runs.rollout(t, "batched", max_tokens=1, round_=round_)
        row = np.arange(len(run["rows"]))
        choice = of_each_draw(t.inputs["sampler"], run, row, np.zeros_like(row), t.inputs["seed"], round_)
        logits = np.asarray(run["logits"])[:, 0]
        mass = np.exp(_filtered(logits, choice)).sum(axis=0)
        drawn = np.bincount(np.asarray(run["tokens"])[:, 0], minlength=logits.shape[1])
        expected = mass if expected is None else expected + mass
        counts = drawn if counts is None else counts + drawn
    if expected is None or counts is None:
        raise ValueError("no round was rolled out")
    sigmas, bins = _chi_square(counts, expected)
    yield t.precondition("draws", int(counts.sum()), ">=", DRAWS)
    yield t.precondition("bins of the test", bins, ">=", 5)
    yield t.number("draws of probability 0", float(counts[expected == 0].sum()), "<=")
    yield t.number("chi-square of the draws, in standard deviations", sigmas, "<=", where=f"{bins} bins")


def _filtered(logits: Array, choice: sampling.Sampling) -> Array:
    """Return the oracle's log-probs, computed once for rows of equal logits and coin side."""
    acts = np.zeros(len(logits), np.bool_)
    if choice["xtc_coin"] is not None:
        acts = np.asarray(choice["xtc_coin"]) < choice["xtc_probability"]
    if (logits != logits[0]).any():
        return sampling.filtered_logprobs(logits, **choice)
    result = np.empty(logits.shape)
    for side in np.unique(acts):
        first = np.flatnonzero(acts == side)[:1]
        keywords = choice.copy()
        if choice["xtc_coin"] is not None:
            keywords["xtc_coin"] = np.asarray(choice["xtc_coin"])[first]
        if choice["history"] is not None:
            keywords["history"] = np.asarray(choice["history"])[first]
        result[acts == side] = sampling.filtered_logprobs(logits[first], **keywords)
    return result


def _chi_square(counts: Array, expected: Array) -> tuple[float, int]:
    """Return the Wilson–Hilferty z-score of χ², and the number of bins."""
    common = expected >= EXPECTED
    seen, want = counts[common].astype(np.float64), expected[common]
    rest = float(expected[~common].sum())
    if rest >= EXPECTED:
        seen, want = np.append(seen, counts[~common].sum()), np.append(want, rest)
    freedom = max(1, len(want) - 1)
    square = float(np.sum((seen - want) ** 2 / want))
    variance = 2.0 / (9.0 * freedom)
    return ((square / freedom) ** (1.0 / 3.0) - (1.0 - variance)) / variance**0.5, len(want)


def _three(rng: np.random.Generator, path: str, choice: Mapping[str, Any]) -> dict[str, Any]:
    return {**_make(rng, choice, samples=8, count=6), "path": path}


@gate(
    "rollout.log-probs.match-definition",
    level="definition",
    name="rollout[three log-probs]",
    question="Are the model, tempered and behaviour log-probs of every path those of its own logits?",
    why="They enter ratios and corrections: one taken for another is a bias that no curve shows.",
    ops=(ROLLOUT,),
    cases=tuple(
        Case(
            f"{name}-{path}",
            partial(_three, path=path, choice=choice),
            quick=path == "batched" and name == "hf-filters",
            proof=path in {"naive", "batched"},
            sample=runs.SAMPLE,
        )
        for path in ("naive", *runs.PATHS)
        for name, choice in CHOICES.items()
    ),
    bounds={f"error of the {name} log-probs in 2u·S": ACCURACY for name in ("model", "tempered", "behaviour")},
    probes=(Probe("rollout", ("model_logprobs",)),),
)
def logprobs_match_definition(t: Trial) -> Iterator[Evidence]:
    """Compute all three from the recorded logits, tokens and coins."""
    run = runs.rollout(t, t.inputs["path"], eos_ids=runs.choose_eos(t))
    row, step = np.nonzero(np.arange(run["tokens"].shape[1]) < np.asarray(run["lengths"])[:, None])
    logits, tokens = run["logits"][row, step], run["tokens"][row, step]
    choice = of_each_draw(t.inputs["sampler"], run, row, step, t.inputs["seed"], 0)
    tau = float(choice["temperature"])
    left = sampling.filtered_logprobs(logits, **choice)
    want = {
        "model": logprobs.selective_log_softmax(logits, tokens, temperature=1.0),
        "tempered": logprobs.selective_log_softmax(logits, tokens, temperature=tau),
        "behaviour": left[np.arange(len(tokens)), tokens],
    }
    limits = {
        "model": textbook.log_probs(logits, tokens, 1.0),
        "tempered": textbook.log_probs(logits, tokens, tau),
        "behaviour": _behaviour_limits(logits, tokens, choice, left > -np.inf),
    }
    yield t.precondition("draws", len(row), ">=", 100)
    for name, other in (("model", "tempered"), ("tempered", "behaviour"), ("behaviour", "model")):
        apart = float(np.abs(want[name] - want[other]).max())
        if t.inputs["sampler"]["top_p"] < 1:  # in the plain case all three are equal
            yield t.precondition(f"largest difference of {name} and {other}", apart, ">=", 1e-3)
    scale = 2.0 * UNIT * logprobs.logprob_scale(logits, tokens, temperature=min(tau, 1.0))
    for name, values in want.items():
        got, quantity = run[f"{name}_logprobs"][row, step], f"error of the {name} log-probs in 2u·S"
        yield from t.agrees(quantity, got, values, limits[name], scale=scale)


def _behaviour_limits(logits: Array, tokens: Array, choice: sampling.Sampling, kept: Array) -> Array:
    """Return the limits of the behaviour log-probs; inf where float32 sums may keep other tokens."""
    seen = None
    if choice["repetition_penalty"] != 1:
        seen = (np.asarray(choice["history"])[:, :, None] == np.arange(logits.shape[1])).any(axis=1)
    penalty, tau = float(choice["repetition_penalty"]), float(choice["temperature"])
    limits = textbook.log_probs(logits, tokens, tau, kept=kept, seen=seen, penalty=penalty)
    keywords: Mapping[str, Any] = choice
    for name in THRESHOLDS:
        for value in (keywords[name] * (1 - CUT), min(1.0, keywords[name] * (1 + CUT))):
            if 0 < keywords[name] < 1:
                moved = sampling.filtered_logprobs(logits, **{**keywords, name: value}) > -np.inf
                limits = np.where((moved == kept).all(axis=1), limits, np.inf)
    return limits
