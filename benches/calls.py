"""Timed calls of rlkernels by name: an op and its keywords, made from seeded workloads. Names are append-only.

Only NumPy is imported here: the processes of `gates bench compare` load this file by path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np

try:
    from benches import workloads
except ImportError:  # a process of `gates bench compare`, which imports this folder's files by name
    import workloads

TRL = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}
GRPO = {
    "algorithm": "grpo",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "delta": None,
    "kl_estimator": "k3",
    "kl_ratio": "none",
}
FILTERS = {"top-p 0.95": {"top_p": 0.95}, "top-k 50": {"top_k": 50}}
STEP, LOGITS = "32x2048", "16x151936-flat"


@dataclass(frozen=True, slots=True)
class Call:
    """An op of rlkernels, its keywords, and the number of elements it processes.

    `shape`, `dtype` and `conventions` select the limits of `limits`; without a shape the result is compared with the oracle
    loosely.
    """

    op: str
    keywords: dict
    elements: int
    shape: str = ""
    dtype: str = "float32"
    conventions: dict = field(default_factory=dict)


def _call(op, shape, elements, dtype="float32", **conventions):
    """Return the call of an op that has a workload."""
    return Call(op, {**workloads.operands(op, shape, dtype), **conventions}, elements, shape, dtype, conventions)


def _advantages(shape):
    prompts, group_size = workloads.REWARDS[shape]
    return _call("group_advantages", shape, prompts * group_size, "float64", **TRL)


def _several_rewards():
    values, group_size = workloads.rewards("1024x32")
    eps = {"group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4}
    several = np.stack([values, np.roll(values, 1), np.roll(values, 2)], axis=1)
    weights = np.array([1.0, 0.5, 0.25])
    keywords = {"rewards": several, "weights": weights, "group_size": group_size, **eps}
    return Call("normalise_then_sum", keywords, several.size)


def _gae():
    step = {name: values[:8, :512] for name, values in workloads.step(STEP).items() if values.ndim > 1}
    keywords = {
        "rewards": np.ascontiguousarray(step["policy"]),
        "values": np.ascontiguousarray(step["old"]),
        "gamma": 0.99,
        "lam": 0.95,
        "mask": np.ascontiguousarray(step["mask"]),
        "lengths": None,
        "terminal": None,
        "bootstrap": None,
    }
    return Call("gae", keywords, step["policy"].size)


def _k3(shape):
    return _call("token_kl", shape, math.prod(workloads.LOG_PROBABILITIES[shape]), estimator="k3", reduction="none")


def _full_kl():
    logits = workloads.logits(LOGITS)[0].astype(np.float64)
    first, second = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (logits[:8], logits[8:]))
    keywords = {"policy_logprobs": first.astype(np.float32), "reference_logprobs": second.astype(np.float32)}
    return Call("full_kl", keywords, first.size)


def _logprobs(shape, *, entropy):
    return _call("selective_log_softmax", shape, _logits(shape), temperature=1.0, entropy=entropy)


def _logits(shape):
    rows, vocabulary, _ = workloads.LOGITS[shape]
    return rows * vocabulary


def _logprobs_backward():
    logits, ids, uniforms = workloads.logits(LOGITS)
    gradient = uniforms.astype(np.float32)
    keywords = {"logits": logits, "ids": ids, "temperature": 1.0, "grad_logprobs": gradient, "grad_entropy": gradient}
    return Call("selective_log_softmax_backward", keywords, logits.size)


def _filtered(op, shape, kept):
    return _call(op, shape, _logits(shape), order="hf", temperature=1.0, **FILTERS[kept])


def _philox():
    counter = np.arange(1 << 17, dtype=np.uint32).reshape(-1, 4)
    return Call("philox4x32_10", {"counter": counter, "key": np.array([1, 2], np.uint32)}, counter.size)


def _uniforms(op):
    places = np.arange(1 << 17)
    sample, rounds = places // 512 % 8, np.full(places.shape, 3)
    keywords = {"seed": 7, "round_": rounds, "prompt": places // 4096, "sample": sample, "token": places % 512}
    return Call(op, keywords, places.size)


def _packed(count, strategy):
    return _call("pack_sequences", count, workloads.LENGTHS[count], strategy=strategy)


def _of_step(op, names, more=(), **settings):
    """Return the call of an op with two policies' log-probs."""
    step = workloads.step(STEP)
    arrays = {**dict(zip(names, (step["policy"], step["old"]), strict=True)), "mask": step["mask"], "lengths": None}
    return Call(op, {**arrays, **{name: step[name] for name in more}, **settings}, step["policy"].size)


def _loss(shape, beta):
    return _call("policy_loss", shape, math.prod(workloads.STEPS[shape]), **GRPO, beta=beta)


CALLS = {
    **{f"group_advantages {shape}": partial(_advantages, shape) for shape in workloads.REWARDS},
    "normalise_then_sum 1024x32": _several_rewards,
    "gae 8x512": _gae,
    **{f"token_kl k3 {shape}": partial(_k3, shape) for shape in workloads.LOG_PROBABILITIES},
    "full_kl 8x151936": _full_kl,
    **{
        f"selective_log_softmax {shape}{' with entropy' if entropy else ''}": partial(_logprobs, shape, entropy=entropy)
        for shape in ("16x151936-flat", "256x151936-flat")
        for entropy in (False, True)
    },
    "selective_log_softmax_backward 16x151936": _logprobs_backward,
    **{
        f"{op} {kept} {shape}": partial(_filtered, op, shape, kept)
        for op in ("filtered_logprobs", "sample_tokens")
        for kept in FILTERS
        for shape in ("16x151936-peaked", "16x151936-flat")
    },
    "philox4x32_10 131072": _philox,
    "uniforms 131072": partial(_uniforms, "uniforms"),
    "xtc_coins 131072": partial(_uniforms, "xtc_coins"),
    **{
        f"pack_sequences {strategy} {count}": partial(_packed, count, strategy)
        for strategy in ("first-fit-decreasing", "best-fit-decreasing")
        for count in ("1000", "100000")
    },
    "importance_ratio 32x2048": partial(_of_step, "importance_ratio", ("policy", "old"), level="token"),
    "importance_weights 32x2048": partial(
        _of_step, "importance_weights", ("old", "sampling"), correction="tis", level="token", c_min=None, c_max=2.0
    ),
    "ratio_statistics 32x2048": partial(
        _of_step, "ratio_statistics", ("policy", "behaviour"), ("advantages",), epsilon_low=0.2, epsilon_high=0.2
    ),
    **{
        f"policy_loss grpo {shape} beta {beta:g}": partial(_loss, shape, beta)
        for shape in workloads.STEPS
        for beta in (0.0, 0.04)
    },
}
