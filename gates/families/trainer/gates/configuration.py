"""Does every key of a training configuration act, are runs free of spikes, and do they agree with their sampler?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.families.trainer.gates import runs as training
from gates.families.trainer.op import TRAIN_RUN
from gates.model import Array, Bound, Case, Evidence, Trial, UnsupportedError
from gates.registry import gate

Tables = Mapping[str, Mapping[str, Any]]
STEPS = 3
OTHER: dict[str, Any] = {"steps": STEPS, "iterations": 2}  # two passes over each rollout, so that ratios leave 1
CLIP = {"epsilon_low": 0.01, "epsilon_high": 0.01}
KEYS: dict[str, tuple[Tables, Tables]] = {  # key: tables of both runs, and changes of the second
    "adapter.rank": ({}, {"adapter": {"rank": 2}}),
    "adapter.scale": ({}, {"adapter": {"scale": 1.0}}),
    "adapter.seed": ({}, {"adapter": {"seed": 5}}),
    "adapter.dropout": ({}, {"adapter": {"dropout": 0.3}}),
    "adapter.targets": ({}, {"adapter": {"targets": ["q_proj"]}}),  # or another layer of the model: `_of_this_model`
    "adapter.layers": ({}, {"adapter": {"layers": 1}}),
    "data.seed": ({}, {"data": {"seed": 1}}),
    "data.shuffle": ({}, {"data": {"shuffle": False}}),
    "rollout.samples_per_prompt": ({}, {"rollout": {"samples_per_prompt": 3}}),
    "rollout.max_tokens": ({}, {"rollout": {"max_tokens": 6}}),
    "rollout.temperature": ({}, {"rollout": {"temperature": 0.8}}),
    "rollout.top_p": ({}, {"rollout": {"top_p": 0.5}}),
    "rollout.top_k": ({}, {"rollout": {"top_k": 3}}),
    "rollout.min_p": ({}, {"rollout": {"min_p": 0.3}}),
    "rollout.repetition_penalty": ({}, {"rollout": {"repetition_penalty": 1.5}}),
    "rollout.seed": ({}, {"rollout": {"seed": 1}}),
    "algorithm.name": ({}, {"algorithm": {"name": "dr_grpo"}}),
    "algorithm.epsilon_low": (
        {"algorithm": {"settings": CLIP}},
        {"algorithm": {"settings": {**CLIP, "epsilon_low": 0.9}}},
    ),
    "algorithm.epsilon_high": (
        {"algorithm": {"settings": CLIP}},
        {"algorithm": {"settings": {**CLIP, "epsilon_high": 9.0}}},
    ),
    "algorithm.beta": ({}, {"algorithm": {"settings": {"beta": 0.5}}}),
    "algorithm.mask_truncated_completions": ({}, {"algorithm": {"settings": {"mask_truncated_completions": True}}}),
    "algorithm.scoring_temperature": ({}, {"algorithm": {"scoring_temperature": 0.5}}),
    "optimizer.name": ({}, {"optimizer": {"name": "sgd"}}),
    "optimizer.learning_rate": ({}, {"optimizer": {"learning_rate": 2e-2}}),
    "optimizer.schedule": ({}, {"optimizer": {"schedule": "linear"}}),
    "optimizer.warmup_steps": ({}, {"optimizer": {"warmup_steps": 2}}),
    "optimizer.betas": ({}, {"optimizer": {"betas": [0.5, 0.9]}}),
    "optimizer.epsilon": ({}, {"optimizer": {"epsilon": 0.1}}),
    "optimizer.weight_decay": ({"optimizer": {"name": "adamw"}}, {"optimizer": {"weight_decay": 0.5}}),
    "optimizer.momentum": ({"optimizer": {"name": "sgd"}}, {"optimizer": {"momentum": 0.9}}),
    "optimizer.max_gradient_norm": ({"optimizer": {"name": "sgd"}}, {"optimizer": {"max_gradient_norm": 1e-3}}),
    "loop.steps": ({}, {"loop": {"steps": STEPS - 1}}),
    "loop.prompts_per_step": ({}, {"loop": {"prompts_per_step": 2}}),
    "loop.iterations": ({}, {"loop": {"iterations": 1}}),
    "loop.minibatches": ({}, {"loop": {"minibatches": 3}}),
    "rewards.functions": ({}, {"rewards": {"functions": [{"name": "diversity"}]}}),
}
QUICK = "algorithm.beta"
PROOF = {"optimizer.betas", "optimizer.max_gradient_norm", "rollout.top_k", "adapter.targets"}
INERT: Tables = {"output": {"completions_every_steps": 1, "checkpoint_every_steps": 1}}


def _merged(tables: Tables, changes: Tables) -> dict[str, Any]:
    return {**tables, **{section: {**tables.get(section, {}), **keys} for section, keys in changes.items()}}


def _make(rng: np.random.Generator, common: Tables, changes: Tables) -> dict[str, Any]:
    base = training._make(rng, tables={"loop": OTHER})
    return {"model": base["model"], "tables": _merged(base["tables"], common), "changes": changes}


def _of_this_model(changes: Tables, run: Mapping[str, Any]) -> Tables:
    """Replace the target `q_proj`, which some families lack, by a kind of layer that had an adapter in the run."""
    if "targets" not in changes.get("adapter", {}) or "targets" not in run:
        return changes
    kinds = sorted(run["targets"])
    if len(kinds) < 2:
        raise UnsupportedError(f"all adapters of this model are on {', '.join(kinds)}; naming that changes nothing")
    return {"adapter": {"targets": kinds[-1:]}}


def _run(t: Trial, name: str, tables: Tables) -> dict[str, Any]:
    return t.got(TRAIN_RUN, **_inputs(t, name, tables))


def _run_once(t: Trial, name: str, tables: Tables) -> dict[str, Any]:
    """Return a run that other cases share if they use this name with the same tables."""
    return t.got_once(TRAIN_RUN, instead={"folder": name}, **_inputs(t, name, tables))


def _inputs(t: Trial, name: str, tables: Tables) -> dict[str, Any]:
    folder = str(t.folder / name)
    return {"model": t.inputs["model"], "tables": tables, "folder": folder, "resume": False, "kill_at_step": None}


def _series(run: Mapping[str, Any], name: str) -> Array:
    lines = [json.loads(line) for line in run["metrics"].splitlines()]
    return np.array([float(line.get(name, "nan")) for line in lines])


@gate(
    "trainer.configuration-applies",
    level="law",
    name="train_run[configuration]",
    question="Does each of these keys of a configuration change the adapters that come out?",
    why="A key that is accepted and never read is worse than an unknown one: the log says that it was used.",
    ops=(TRAIN_RUN,),
    cases=tuple(
        Case(
            f"{name}-acts",
            partial(_make, common=common, changes=changes),
            quick=name == QUICK,
            proof=name in PROOF,
            limit_s=180,
            sample="trainer.configuration",  # the same data, so that most cases share the run without a change
        )
        for name, (common, changes) in KEYS.items()
    ),
    bounds={
        "keys that change nothing": Bound("exact", "another setting is another computation, in every case here", 0),
        "digests that a second run of the same changes": Bound("exact", "a run is a function of its configuration", 0),
        "digests that files for people change": Bound("exact", "what is written for reading is no input", 0),
    },
)
def configuration_applies(t: Trial) -> Iterator[Evidence]:
    """Train with and without the change; a repetition, and a run that writes more files, must give the same adapters."""
    tables = t.inputs["tables"]
    first = _run_once(t, "first", tables)
    changes = _of_this_model(t.inputs["changes"], first)
    norms = _series(first, "gradient_norm")
    yield t.precondition("steps with a gradient", int(np.sum(norms > 0)), ">=", 2, "an idle run hides every key")
    changed = _run(t, "other", _merged(tables, changes))
    yield t.number("keys that change nothing", int(first["digest"] == changed["digest"]), "<=", where=str(changes))
    again, wordy = _run_once(t, "again", tables), _run_once(t, "wordy", _merged(tables, INERT))
    yield t.number("digests that a second run of the same changes", int(first["digest"] != again["digest"]), "<=")
    yield t.number("digests that files for people change", int(first["digest"] != wordy["digest"]), "<=")


LENGTH = 24
WARMUP = 4  # steps; without it Adam's first step, which moves every weight by the full rate, is an honest spike
SPIKE = 8.1  # for LENGTH normal values; tests/gates/families/test_checks_laws.py simulates it
SPIKE_BECAUSE = (
    "robust z = (x − median) / (1.4826·MAD) of the logarithm, over a run; were the logarithms of these means over 32 "
    "completions normal, the largest of 24 would pass 8.1 in one run of 10⁴, and it grows by the logarithm of a spike"
)


SPIKE_ELSEWHERE = (
    f"learning rate, warm-up and the limit of {SPIKE} are for the tiny model of this case; on another model honest steps may "
    "pass them"
)


def _steady(rng: np.random.Generator, **algorithm: Any) -> dict[str, Any]:
    tables: Tables = {
        "loop": {"steps": LENGTH, "prompts_per_step": 4, "iterations": 2},
        "rollout": {"samples_per_prompt": 8},
        "optimizer": {"learning_rate": 2e-3, "max_gradient_norm": None, "schedule": "constant", "warmup_steps": WARMUP},
        "algorithm": algorithm,
    }
    base = training._make(rng)
    return {"model": base["model"], "tables": _merged(base["tables"], tables)}


@gate(
    "trainer.no-spikes",
    level="law",
    name="train_run[steady]",
    question="Does a short run stay free of jumps in the gradient's norm and in the ratio's KL, and of numbers that are not finite?",
    why="A wrong scale at one step of many, or state that leaks between steps, shows as a spike and heals before anyone looks.",
    ops=(TRAIN_RUN,),
    cases=(
        Case("grpo", partial(_steady, name="grpo", settings={"beta": 0.02}), proof=True, limit_s=300),
        Case("dapo", partial(_steady, name="dapo"), limit_s=300),
        Case("gspo", partial(_steady, name="gspo"), limit_s=300),
    ),
    bounds={
        "steps whose numbers are not finite": Bound("exact", "float32, far from overflow", 0),
        "largest robust z of the gradient's norm": Bound("derived", SPIKE_BECAUSE, SPIKE),
        "largest robust z of the ratio's KL": Bound("derived", SPIKE_BECAUSE, SPIKE),
    },
)
def no_spikes(t: Trial) -> Iterator[Evidence]:
    """Bound the robust z-scores of the logarithms of gradient norms and of k3 to the sampling policy, over a run.

    Raises:
        UnsupportedError: the model is not the tiny one.
    """
    if "path" in t.inputs["model"].spec:
        raise UnsupportedError(SPIKE_ELSEWHERE)
    run = _run(t, "run", t.inputs["tables"])
    norms, kl = _series(run, "gradient_norm"), _series(run, "ratio_k3")
    yield t.precondition("steps", len(norms), ">=", LENGTH)
    yield t.precondition("steps with different norms", len(np.unique(norms)), ">=", LENGTH // 2)
    broken = int(np.sum(~(np.isfinite(norms) & np.isfinite(kl) & np.isfinite(_series(run, "loss")))))
    yield t.number("steps whose numbers are not finite", broken, "<=")
    for name, series in (("gradient's norm", norms), ("ratio's KL", kl)):
        scores = robust_z(np.log(np.maximum(series, float(np.finfo(np.float32).tiny))))
        at = int(np.argmax(scores))
        yield t.number(
            f"largest robust z of the {name}", float(scores[at]), "<=", where=f"step {at + 1}: {series[at]:.4g}"
        )


def robust_z(values: Array) -> Array:
    """Return (x − median) / (1.4826·MAD): standard deviations for normal values, robust to outliers."""
    off = values - np.median(values)
    return np.asarray(off / max(1.4826 * float(np.median(np.abs(off))), float(np.finfo(np.float64).tiny)))


def _tempered(rng: np.random.Generator, temperature: float, path: str) -> dict[str, Any]:
    changes: Tables = {
        "loop": {"steps": 2},
        "rollout": {"temperature": temperature, "path": path, "samples_per_prompt": 8},
    }
    noise = runs.case_inputs(rng, temperature=temperature, top_p=1.0, samples=4, count=6)
    return {**noise, "tables": _merged(training._make(rng)["tables"], changes)}


@gate(
    "trainer.scores-at-the-temperature-of-sampling",
    level="law",
    name="train_run[temperature]",
    question="In a run, are tokens scored at the temperature they were drawn at?",
    why="Sampled at 0.7 and scored at 1, every ratio to the sampler is wrong, and the run learns something else, slowly.",
    ops=(TRAIN_RUN, ROLLOUT, TOKEN_LOGITS),
    cases=tuple(
        Case(
            f"{temperature}-{path}",
            partial(_tempered, temperature=temperature, path=path),
            quick=quick,
            proof=proof,
            limit_s=180,
        )
        for temperature, path, quick, proof in (
            (0.7, "batched", True, True),
            (1.5, "batched", False, True),
            (0.7, "naive", False, False),
        )
    ),
    bounds={
        "largest |Δ log-prob| of sampler and scorer": Bound(
            "calibrated",
            "E = 8F, F the naive path's own float32 noise against float64 on other prompts and draws, measured in this run; "
            "over τ, one error of each side, a rounding of each in float32 among them",
            lambda t: 2 * t.facts["E"] / float(t.inputs["sampler"]["temperature"]),
        )
    },
)
def scores_at_the_temperature(t: Trial) -> Iterator[Evidence]:
    """Read the run's own distance of policy and sampler; a scoring temperature of 1 must change it."""
    yield from runs.calibrate(t, runs.ADAPTER)
    tables = t.inputs["tables"]
    run = _run(t, "run", tables)
    yield t.precondition("steps", len(run["metrics"].splitlines()), ">=", 2)
    yield t.precondition("mean entropy of the sampled tokens", float(_series(run, "entropy_sampled").min()), ">=", 0.5)
    largest = float(np.max(_series(run, "sampler_max_abs")))
    yield t.number("largest |Δ log-prob| of sampler and scorer", largest, "<=")
    untempered = _run(t, "other", _merged(tables, {"algorithm": {"scoring_temperature": 1.0}}))
    moved = float(np.min(_series(untempered, "sampler_max_abs")))
    yield t.negative_control(
        "the same with tokens scored at 1", moved, ">=", 0.2, "a distance that never moves proves nothing"
    )
