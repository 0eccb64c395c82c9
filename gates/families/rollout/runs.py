"""Rollouts that several gates share: the tiny model, EOS ids and the noise floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.families.rollout.prompts import recipe, token_ids
from gates.model import Array, Evidence, Recipe, SubjectFaultError, Trial
from gates_reference.oracle import sampling

PATHS = ("cached", "prefix", "batched", "compiled")
FAMILIES = ("llama", "qwen3_moe", "gemma3_text", "qwen3_next", "qwen3_5")
MAX_TOKENS = 8
ADAPTER = {"rank": 4, "scale": 2.0, "seed": 3, "b_std": 0.1}
NOISE = "E = 8F, F the naive path's own float32 noise against float64 on other prompts and draws, measured in this run"
OTHER_SEED = 7_919  # offset of the seeds that measure noise, so that they differ from the judged draws
SAMPLE = "rollout"  # shared by these cases: the same prompts and draws on every path, so that the slow one runs once
PER_ROW = ("rows", "tokens", "lengths", "ended", "logits", "uniforms")
TRIES = 3  # sets of prompts that are tried until the noise is small enough
ROUTED = 1e-5  # in probability; float32 changes the gap between a chosen and another expert by at most 2e-6
SMALLEST_EFFECT = 0.05  # nats: the adapter change in the control of the ratio gate
ENDING_SHARE = 0.6  # the share of rows that the chosen EOS ids should end


def model(bits: int = 32, family: str = "qwen3") -> Recipe:
    """Return a tiny model, by default Qwen3; `--model` replaces it by a real one.

    In float32 Qwen3 is as small as possible, because each of 10⁵ draws takes a full forward; 4 bits need 32 columns.
    """
    if family != "qwen3":
        return Recipe("model", {"family": family, "seed": 11, "bits": bits, "vocab": 272})
    small = {"hidden": 16, "head_dim": 8, "heads": 2, "kv_heads": 1} if bits == 32 else {}
    return Recipe("model", {"seed": 11, "bits": bits, "vocab": 272, **small})


def sampler(temperature: float, top_p: float, **filters: Any) -> dict[str, Any]:
    """Return the sampling keywords of a rollout; filters are off unless named."""
    off = {"top_k": 0, "min_p": 0.0, "xtc_probability": 0.0, "xtc_threshold": 0.1, "repetition_penalty": 1.0}
    return {"temperature": temperature, "top_p": top_p, **off, "order": "hf", **filters}


def case_inputs(
    rng: np.random.Generator,
    *,
    temperature: float,
    top_p: float,
    samples: int,
    count: int,
    bits: int = 32,
    style: str = "plain",
    family: str = "qwen3",
    **filters: Any,
) -> dict[str, Any]:
    """Return the inputs of a rollout case: model, `count` prompts, `samples` of each, sampler and seed."""
    seed = int(rng.integers(1, 2**31))
    return {
        "model": model(bits, family),
        "prompts": recipe(seed, count, style),
        "samples": samples,
        "seed": seed,
        "sampler": sampler(temperature, top_p, **filters),
    }


def worded_inputs(
    rng: np.random.Generator, temperature: float = 0.7, path: str = "naive", family: str = "qwen3"
) -> dict[str, Any]:
    """Return the inputs of a case with a few worded prompts and 8 samples of each, drawn with top-p on this path."""
    inputs = case_inputs(rng, temperature=temperature, top_p=0.95, samples=8, count=6, family=family, style="worded")
    return {**inputs, "path": path}


def slow(t: Trial, **changes: Any) -> dict[str, Any]:
    """Return a rollout on the naive path, which runs once for all checks with the same inputs."""
    return rollout(t, "naive", once=True, **changes)


def rollout(t: Trial, path: str, *, once: bool = False, **changes: Any) -> dict[str, Any]:
    """Run one rollout of the case's model and prompts; with `once` another check may share it.

    `prompt_tokens` of the result are the ids of its prompts.
    """
    keywords = arguments(t, path, **changes)
    run = (t.got_once if once else t.got)(ROLLOUT, **keywords)
    if problem := _impossible(run, prompts=len(keywords["prompts"])):
        raise SubjectFaultError("value", f"rollout[{path}] {problem}")
    return {**run, "prompt_tokens": keywords["prompts"]}


def arguments(t: Trial, path: str, *, round_: int = 0, prompts: Recipe | None = None, **changes: Any) -> dict[str, Any]:
    """Return the arguments of a rollout of the case's model and prompts, or of other prompts."""
    x = t.inputs
    keywords: dict[str, Any] = {
        "model": x["model"],
        "prompts": token_ids(prompts or x["prompts"]),
        "samples": x["samples"],
        "max_tokens": MAX_TOKENS,
        **x["sampler"],
        "seed": x["seed"],
        "round": round_,
        "eos_ids": np.zeros(0, np.int64),
        "path": path,
        "rows": None,
        "adapter": None,
        "before": None,
        "kv_bits": None,
        "record_logits": True,
    }
    return {**keywords, **changes}


def _impossible(run: Mapping[str, Any], prompts: int) -> str:
    """Return how a rollout violates its contract, or ""."""
    tokens, lengths, rows = (np.asarray(run[name]) for name in ("tokens", "lengths", "rows"))
    if rows.shape != (len(tokens), 2) or rows.min(initial=0) < 0 or rows[:, 0].max(initial=0) >= prompts:
        return f"has rows {rows.tolist()[:4]}, must be (prompt, sample) for each row of tokens, with a prompt below {prompts}"
    if lengths.shape != tokens.shape[:1] or lengths.min(initial=1) < 1 or lengths.max(initial=1) > tokens.shape[1]:
        return f"has lengths {lengths.tolist()[:8]}, must be one for each row, from 1 to {tokens.shape[1]}"
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    logits = run.get("logits")
    if tokens[inside].min(initial=0) < 0:
        return "has a negative token before the end of a row"
    if logits is None:
        return ""
    if logits.shape[:2] != tokens.shape or tokens.max(initial=0) >= logits.shape[2]:
        return f"has logits {logits.shape}, must be a row for each token of {tokens.shape}, each token below V"
    wrong = ~np.isfinite(logits).all(axis=2) & inside
    return f"has logits that are not finite at {int(wrong.sum())} draws" if wrong.any() else ""


def choose_eos(t: Trial, adapter: Mapping[str, Any] | None = None) -> Array:
    """Return EOS ids that end most of the case's rows, at different steps, and leave some unended.

    They are chosen from a naive run of the case without EOS, with its own prompts and adapter.
    """
    run = slow(t, record_logits=False, samples=min(8, int(t.inputs["samples"])), adapter=adapter)
    return _ends(np.asarray(run["tokens"]))


def cut_at_ends(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return a naive run without EOS with its rows cut as if `choose_eos` had been asked first.

    For gates to which a rollout is only a source of ragged rows: a row's draws do not depend on which ids end it.
    """
    tokens = np.asarray(run["tokens"])
    hits = np.isin(tokens, _ends(tokens))
    lengths = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, tokens.shape[1])
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    cut = {**run, "tokens": np.where(inside, tokens, -1), "lengths": lengths, "ended": hits.any(axis=1)}
    return cut if run.get("logits") is None else {**cut, "logits": np.where(inside[:, :, None], run["logits"], 0)}


def _ends(tokens: Array) -> Array:
    """Return ids that end most of these rows (R, T) without an end, at different steps, and leave some unended."""
    common = np.bincount(tokens[:, 1:-1].ravel(), minlength=int(tokens.max()) + 1).argsort()[::-1]
    chosen: list[int] = []
    for token in common[1:]:  # the most common token would end nearly every row at the same step
        if np.isin(tokens, chosen).any(axis=1).mean() >= ENDING_SHARE:
            break
        if np.isin(tokens, [*chosen, token]).any(axis=1).mean() < 0.95:
            chosen.append(int(token))
    if not np.isin(tokens, chosen).any():  # in counterexamples with so few rows that each token ends all of them
        drawn, times = np.unique(tokens, return_counts=True)
        chosen = [int(drawn[times.argmin()])]
    return np.array(chosen, np.int64)


def own_noise(t: Trial, run: Mapping[str, Any], adapter: Mapping[str, Any] | None = None) -> Array:
    """Return the |Δ log-softmax| (R, T) of a recorded naive run against float64, 0 after each row's end."""
    exact = t.got_once(TOKEN_LOGITS, **scoring_batch(t, run), dtype="float64", adapter=adapter)["logits"]
    inside = np.arange(exact.shape[1]) < np.asarray(run["lengths"])[:, None]
    errors = np.zeros(inside.shape)
    errors[inside] = sampling.logit_distance(run["logits"][inside], exact[inside])
    return errors


def settled(t: Trial, run: Mapping[str, Any], adapter: Mapping[str, Any] | None = None) -> Array:
    """Return the draws (R, T) for which no choice of experts depends on the precision."""
    gaps = t.got_once(TOKEN_LOGITS, **scoring_batch(t, run), dtype="float32", adapter=adapter).get("router_gaps")
    return np.ones(np.shape(run["tokens"]), np.bool_) if gaps is None else np.asarray(gaps) > ROUTED


def noise_floor(t: Trial, adapter: Mapping[str, Any] | None = None) -> float:
    """Return F: the largest |Δ log-softmax| of the naive float32 path against float64, on other prompts and draws.

    Recurrent layers have a heavy tail: if one draw is so far off that E would separate nothing, other prompts are drawn.
    """
    samples = 4 if t.quick else 32  # the noise has a heavy tail, and a full run compares ten times as many draws
    floor = 0.0
    for number in range(TRIES):
        seed = int(t.inputs["seed"]) + OTHER_SEED * (number + 1)
        run = slow(t, prompts=recipe(seed, 24), samples=samples, seed=seed, adapter=adapter)
        errors = own_noise(t, run, adapter)
        floor = float(errors.max())
        if 8.0 * floor > SMALLEST_EFFECT:
            floor = float(errors[settled(t, run, adapter)].max(initial=0.0))
        if 8.0 * floor <= SMALLEST_EFFECT:
            break
    return floor


def calibrate(t: Trial, adapter: Mapping[str, Any] | None = None) -> Iterator[Evidence]:
    """Set E = 8F for the bounds of this trial, and require that it separates noise from mistakes.

    F is measured on the subject. On the tiny model in float32 it is about 1e-5; if it is much larger, the naive path does
    not draw from the logits of its model. A model of `--model` may be noisier.
    """
    floor = noise_floor(t, adapter)
    t.facts["E"] = 8.0 * floor
    yield t.precondition("noise floor F of the naive path against float64", floor, ">", 0.0)
    because = "the smallest change that must be seen"
    if "path" in t.inputs["model"].spec:
        yield t.precondition("calibrated limit E = 8F", t.facts["E"], "<=", SMALLEST_EFFECT, because)
    else:
        quantity = "8F, F the largest distance of the naive path's log-probs from float64"
        yield t.negative_control(quantity, t.facts["E"], "<=", SMALLEST_EFFECT, because)


def scoring_batch(t: Trial, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of ops that score the rows of a rollout."""
    return {
        "model": t.inputs["model"],
        "prompt_tokens": row_prompts(run),
        "tokens": run["tokens"],
        "lengths": run["lengths"],
    }


def row_prompts(run: Mapping[str, Any]) -> list[Array]:
    """Return each row's prompt tokens."""
    return [run["prompt_tokens"][int(prompt)] for prompt, _ in run["rows"]]
