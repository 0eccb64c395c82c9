"""Are the scores that a loss is made of those of the model's own logits, in every family?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.checks import runs
from gates.checks.ops import COMPLETION_ENTROPIES, COMPLETION_LOGPROBS, ROLLOUT, TOKEN_LOGITS
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import logprobs

TEMPERATURE = 0.7
ADAPTER = {"rank": 4, "scale": 2.0, "seed": 3, "b_std": 0.1}
NOISE = "E = 8F, F the naive path's own float32 noise against float64 on other prompts and draws, measured in this run"


def _make(
    rng: np.random.Generator, family: str = "qwen3", bits: int = 32, *, embeddings: bool = False
) -> dict[str, Any]:
    inputs = runs.case_inputs(
        rng, temperature=1.0, top_p=1.0, samples=4, count=6, bits=bits, family=family, style="worded"
    )
    return {**inputs, "adapter": {**ADAPTER, "embeddings": embeddings}}


CASES = (
    Case("qwen3", _make, quick=True),
    Case("qwen3-4-bit", partial(_make, bits=4), quick=True),
    Case("llama-embeddings", partial(_make, family="llama", embeddings=True)),
    Case("gemma3_text-tied-embeddings", partial(_make, family="gemma3_text", embeddings=True), quick=True),
    Case("qwen3_moe-4-bit", partial(_make, family="qwen3_moe", bits=4)),
    Case("qwen3_next", partial(_make, family="qwen3_next"), quick=True),
    Case("qwen3_5", partial(_make, family="qwen3_5")),
)


def _scored(t: Trial) -> Iterator[Evidence]:
    """Yield the signals, and keep the batch and the logits that drew its tokens in the trial's facts."""
    yield from runs.calibrate(t, t.inputs["adapter"])
    run = runs.rollout(t, "naive", adapter=t.inputs["adapter"], eos_ids=runs.choose_eos(t))
    inside = np.arange(run["tokens"].shape[1]) < np.asarray(run["lengths"])[:, None]
    yield t.signal("scored tokens", int(inside.sum()), ">=", 30)
    yield t.signal("different lengths of prompts", len({len(p) for p in runs.row_prompts(run)}), ">=", 2)
    yield t.signal("different lengths of completions", len(set(np.asarray(run["lengths"]).tolist())), ">=", 2)
    t.facts["run"], t.facts["inside"] = run, inside


def _batch(t: Trial) -> Mapping[str, Any]:
    return {**runs.scoring_batch(t, t.facts["run"]), "temperature": TEMPERATURE, "adapter": t.inputs["adapter"]}


def _table(t: Trial, values: Array) -> Array:
    """Return values (R, T) with 0 where no token is scored, as subjects return them."""
    return np.where(t.facts["inside"], values, 0.0)


@gate(
    "scoring.log-probs.match-logits",
    name="completion_logprobs",
    question="Are the log-probs of a padded batch of completions those of the logits that the naive path drew them from?",
    why="A head applied to the wrong states, or scores in the wrong slots, look like a bad policy, never like a mistake.",
    ops=(ROLLOUT, TOKEN_LOGITS, COMPLETION_LOGPROBS),
    cases=CASES,
    bounds={"log-probs": Bound("calibrated", f"{NOISE}; over τ", lambda t: t.facts["E"] / TEMPERATURE)},
    probes=(Probe("completion_logprobs", ("logprobs",)),),
)
def log_probs_match_logits(t: Trial) -> Iterator[Evidence]:
    """Draw with a full forward for every token, then score all rows at once at another temperature."""
    yield from _scored(t)
    run = t.facts["run"]
    ids = np.maximum(run["tokens"], 0)
    want = logprobs.selective_log_softmax(run["logits"], ids, temperature=TEMPERATURE)
    got = t.got(COMPLETION_LOGPROBS, **_batch(t), adapters_on=True)["logprobs"]
    yield t.within("log-probs", got, _table(t, want))


@gate(
    "scoring.entropies.match-logits",
    name="completion_entropies",
    question="Are the entropies of a padded batch those of the same logits at the same temperature?",
    why="They choose the tokens of a top-entropy mask and enter an entropy bonus: a wrong one trains other tokens.",
    ops=(ROLLOUT, TOKEN_LOGITS, COMPLETION_ENTROPIES),
    cases=CASES,
    bounds={
        "entropies": Bound(
            "calibrated",
            f"{NOISE}; |ΔH| <= Σ p |log p + H| · E/τ <= 2 log V · E/τ, V the vocabulary",
            lambda t: 2 * float(np.log(t.facts["run"]["logits"].shape[2])) * t.facts["E"] / TEMPERATURE,
        )
    },
    probes=(Probe("completion_entropies", ("entropies",)),),
)
def entropies_match_logits(t: Trial) -> Iterator[Evidence]:
    """Compare with the oracle's entropies of the logits that the naive path recorded."""
    yield from _scored(t)
    want = logprobs.entropy(t.facts["run"]["logits"], temperature=TEMPERATURE)
    yield t.signal("mean entropy", float(want[t.facts["inside"]].mean()), ">=", 0.5)
    got = t.got(COMPLETION_ENTROPIES, **_batch(t))["entropies"]
    yield t.within("entropies", got, _table(t, want))
