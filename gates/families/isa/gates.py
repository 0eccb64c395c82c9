"""Does every kernel give the same bits on every instruction set of the machine, with any number of threads?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.isa.op import KERNEL_BITS
from gates.model import Array, Bound, Case, Evidence, Trial
from gates.registry import gate
from gates_reference.algorithms import ALGORITHMS
from gates_reference.oracle import logprobs

Inputs = dict[str, Any]
Make = Callable[[np.random.Generator, str], Inputs]
# No multiple of a number of lanes, chunks or threads, and large enough for the kernels to use several threads;
# tests/gates/families/test_checks_kernels.py reads those thresholds from their source.
ROWS, WIDTH = 151, 1003
GROUPS, TIMES = 4099, 8  # groups of 8 rewards, tiled TIMES times, because drawing all takes longer than judging
VOCABULARY = 20_011  # a prime
LONG = 40_009  # a prime; the kernels cut rows of this length into segments if there are few
TRL: Inputs = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}
CLIP: Inputs = {"epsilon_low": 0.1875, "epsilon_high": 0.25}
CONSTANTS: Inputs = {  # each exact in binary
    **CLIP,
    "micro_batches": [50, 101],
    "max_length": 2048,
    "dapo_denominator": "global",
    "cispo_bound": "relative",
    "sapo_temperature_positive": 1.0,
    "sapo_temperature_negative": 1.0625,
}
KL_RATIOS = {"grpo": "token", "gspo": "sequence"}  # of the other algorithms: none
FILTERS: Inputs = {
    "order": "hf",
    "temperature": 0.75,
    "top_k": 500,
    "top_p": 0.9375,
    "min_p": 0.001953125,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.015625,
    "repetition_penalty": 1.25,
    "presence_penalty": 0.75,
    "frequency_penalty": 0.375,
    "min_tokens_to_keep": 4,
}


def _pairs(rng: np.random.Generator, dtype: str, names: tuple[str, ...], **settings: Any) -> Inputs:
    """Return log-probs of these names that lie near each other, and a mask with a ragged edge and an empty row."""
    policy = arrays.logprobs(rng, (ROWS, WIDTH))
    near = {name: np.minimum(policy + rng.normal(0.0, 0.3, policy.shape), 0.0) for name in names[1:]}
    values = {name: value.astype(dtype) for name, value in ({names[0]: policy} | near).items()}
    mask = arrays.ragged_mask(rng, ROWS, WIDTH, empty_row=True)
    return {**values, "mask": mask, "lengths": None, **settings}


def _advantages(rng: np.random.Generator, dtype: str, scale: str) -> Inputs:
    rewards = np.tile(arrays.rewards(rng, GROUPS, 8, dtype), TIMES)
    return {"rewards": rewards, "group_size": 8, **TRL, "scale": scale}


def _several(rng: np.random.Generator, dtype: str) -> Inputs:
    rewards = np.stack([arrays.rewards(rng, 2001, 8, dtype) for _ in range(3)], axis=1)
    eps = {"group_ddof": 1, "group_eps": 0.0625, "batch_ddof": 0, "batch_eps": 0.0625}
    return {"rewards": rewards, "weights": np.array([1.0, 0.5, -2.0], dtype), "group_size": 8, **eps}


def _full_kl(rng: np.random.Generator, dtype: str) -> Inputs:
    left, right = logprobs.log_softmax(rng.normal(0.0, 3.0, (2, 7, VOCABULARY)), temperature=1.0).astype(dtype)
    return {"policy_logprobs": left, "reference_logprobs": right}


def _statistics(rng: np.random.Generator, dtype: str) -> Inputs:
    pairs = _pairs(rng, dtype, ("policy", "behaviour"), **CLIP)
    return {**pairs, "advantages": rng.normal(0.0, 1.0, ROWS).astype(dtype)}


def _loss(rng: np.random.Generator, dtype: str, algorithm: str) -> Inputs:
    one = ALGORITHMS[algorithm]
    return {
        **_pairs(rng, dtype, ("policy", "old", "reference"), **dict.fromkeys(CLIP)),
        "advantages": rng.normal(0.0, 1.0, ROWS).astype(dtype),
        "algorithm": algorithm,
        "beta": 0.0625 if one.kl_in_loss else 0.0,
        **{name: CONSTANTS.get(name, value) for name, value in one.constants.items()},
        **({"kl_ratio": KL_RATIOS[algorithm]} if algorithm in KL_RATIOS else {}),
    }


def _logits(rng: np.random.Generator, dtype: str, rows: int, vocabulary: int, **settings: Any) -> Inputs:
    logits = rng.normal(0.0, 3.0, (rows, vocabulary)).astype(dtype)
    return {"logits": logits, "ids": rng.integers(0, vocabulary, rows), "temperature": 0.75, **settings}


def _tokens(rng: np.random.Generator, dtype: str, *, backward: bool) -> Inputs:
    """Return three ids for each row, every fourth of which is ignored."""
    ids = rng.integers(0, VOCABULARY, (11, 3))
    ids.reshape(-1)[::4] = -100
    more: Inputs = {"entropy": True}
    if backward:
        upstream = rng.normal(0.0, 1.0, ids.shape).astype("float64" if dtype == "float64" else "float32")
        more = {"grad_logprobs": upstream, "grad_entropy": upstream[:, 0].copy()}
    return {**_logits(rng, dtype, 11, VOCABULARY), "ids": ids, "ignore_index": -100, **more}


def _backward(rng: np.random.Generator, dtype: str, rows: int, vocabulary: int) -> Inputs:
    upstream, of_entropy = rng.normal(0.0, 1.0, (2, rows)).astype("float64" if dtype == "float64" else "float32")
    return _logits(rng, dtype, rows, vocabulary, grad_logprobs=upstream, grad_entropy=of_entropy)


def _filtered(rng: np.random.Generator, dtype: str, order: str) -> Inputs:
    history = rng.integers(0, VOCABULARY, (7, 20))
    logits = _logits(rng, dtype, 7, VOCABULARY)["logits"]
    lists = {
        "history": history,
        "generated": history[:, :9],
        "xtc_special_tokens": history[0, :3],
        "logit_bias": rng.normal(0.0, 1.0, VOCABULARY),
    }
    return {**FILTERS, **lists, "order": order, "logits": logits, "xtc_coin": rng.random(7)}


def _sampled(rng: np.random.Generator, dtype: str) -> Inputs:
    return {**_filtered(rng, dtype, "hf"), "uniforms": rng.random(7)}


def _episodes(rng: np.random.Generator, dtype: str) -> Inputs:
    rewards, values = rng.normal(0.0, 1.0, (2, ROWS, WIDTH)).astype(dtype)
    settings = {"gamma": 0.984375, "lam": 0.9375, "bootstrap": values[:, 0].copy(), "terminal": rewards > 2.0}
    return {"rewards": rewards, "values": values, **settings, "mask": arrays.ragged_mask(rng, ROWS, WIDTH)}


def _words(rng: np.random.Generator, dtype: str) -> Inputs:
    del dtype
    counter = rng.integers(0, 1 << 32, (10_007, 4), dtype=np.uint32)
    return {"counter": counter, "key": rng.integers(0, 1 << 32, 2, dtype=np.uint32)}


_kl = partial(_pairs, names=("policy", "reference", "old"))
_ratio = partial(_pairs, names=("policy", "old"))
_weights = partial(_pairs, names=("old", "sampling"), c_min=0.5, c_max=2.0)
#: name → op, the input that is moved by one unit in its last place, how the inputs are made.
KERNELS: dict[str, tuple[str, str, Make]] = {
    "advantages-group": ("group_advantages", "rewards", partial(_advantages, scale="group")),
    "advantages-batch": ("group_advantages", "rewards", partial(_advantages, scale="batch")),
    "gae": ("gae", "rewards", _episodes),
    "normalise-then-sum": ("normalise_then_sum", "rewards", _several),
    "k1-none": ("token_kl", "policy", partial(_kl, estimator="k1", reduction="none", kl_ratio="none")),
    "k2-sum": ("token_kl", "policy", partial(_kl, estimator="k2", reduction="sum", kl_ratio="token")),
    "k3-none": ("token_kl", "policy", partial(_kl, estimator="k3", reduction="none", kl_ratio="none")),
    "k3-mean": ("token_kl", "policy", partial(_kl, estimator="k3", reduction="mean", kl_ratio="sequence")),
    "full-kl": ("full_kl", "policy_logprobs", _full_kl),
    "ratio-token": ("importance_ratio", "policy", partial(_ratio, level="token")),
    "ratio-seq-mean": ("importance_ratio", "policy", partial(_ratio, level="seq_mean")),
    "weights-tis": ("importance_weights", "old", partial(_weights, correction="tis", level="token")),
    "weights-mis": ("importance_weights", "old", partial(_weights, correction="mis", level="token")),
    "statistics": ("ratio_statistics", "policy", _statistics),
    **{f"loss-{name}": ("policy_loss", "policy", partial(_loss, algorithm=name)) for name in ALGORITHMS},
    **{
        f"log-softmax{path}{way}": (f"selective_log_softmax{op}", "logits", partial(make, rows=rows, vocabulary=size))
        for way, op, make in (("", "", partial(_logits, entropy=True)), ("-backward", "_backward", _backward))
        for path, rows, size in (("", 11, VOCABULARY), ("-long-rows", 5, LONG))
    },
    "log-softmax-tokens": ("selective_log_softmax", "logits", partial(_tokens, backward=False)),
    "log-softmax-tokens-backward": ("selective_log_softmax_backward", "logits", partial(_tokens, backward=True)),
    "filters-hf": ("filtered_logprobs", "logits", partial(_filtered, order="hf")),
    "filters-mlx-lm": ("filtered_logprobs", "logits", partial(_filtered, order="mlx-lm")),
    "sampled": ("sample_tokens", "logits", _sampled),
    "philox": ("philox4x32_10", "counter", _words),
}
FIRST = {op: name for name, (op, *_) in reversed(KERNELS.items())}  # the first of each op


def _case(name: str, dtype: str) -> Case:
    kernel, moved, make = KERNELS[name]

    def inputs(rng: np.random.Generator) -> dict[str, Any]:
        return {"kernel": kernel, "moved": moved, "inputs": make(rng, dtype)}

    narrow = dtype == "float32"
    return Case(f"{name}-{dtype}", inputs, quick=narrow and FIRST[kernel] == name, proof=narrow, limit_s=60.0)


def _dtypes(name: str) -> tuple[str, ...]:
    if name == "philox":
        return ("uint32",)
    return ("float32", "float64", "float16") if name.startswith("log-softmax") else ("float32", "float64")


@gate(
    "isa.bits-identical",
    level="law",
    name="kernel_bits",
    question="Does each kernel return the same bits on every instruction set here, with one, two and three threads?",
    why="A run that cannot be repeated bit by bit on another machine cannot be told from one that went wrong.",
    ops=(KERNEL_BITS,),
    cases=tuple(_case(name, dtype) for name in KERNELS for dtype in _dtypes(name)),
    bounds={
        "bytes that differ from the first variant's": Bound(
            "exact", "lanes, reduction tree and chunks are fixed, and every variant rounds as IEEE 754 says", 0
        ),
        "bytes that differ between two calls": Bound("exact", "nothing else enters", 0),
    },
)
def bits_identical(t: Trial) -> Iterator[Evidence]:
    """Compare the bytes of all variants; the control moves one input by one unit in its last place."""
    kernel, inputs = t.inputs["kernel"], t.inputs["inputs"]
    moved = {**inputs, t.inputs["moved"]: _next(inputs[t.inputs["moved"]])}
    first = t.got(KERNEL_BITS, kernel=kernel, inputs=inputs)
    bits, variants = first["bits"], [str(name) for name in first.get("variants", [])]
    yield t.precondition("variants of instruction set and threads", min(len(variants), len(bits)), ">=", 2)
    yield t.precondition("bytes that are not 0", int(np.count_nonzero(bits[0])), ">=", 8, "zeros agree with zeros")
    differing = np.sum(bits != bits[0], axis=1)
    worst = int(np.argmax(differing))
    where = f"{variants[worst]} against {variants[0]}" if differing[worst] else ""
    yield t.number("bytes that differ from the first variant's", int(differing[worst]), "<=", where=where)
    again = t.got(KERNEL_BITS, kernel=kernel, inputs=inputs)["bits"]
    same = again.shape == bits.shape
    yield t.number("bytes that differ between two calls", int(np.sum(again != bits)) if same else bits.size, "<=")
    moved_bits = t.got(KERNEL_BITS, kernel=kernel, inputs=moved)["bits"]
    changed = int(np.sum(moved_bits != bits)) if moved_bits.shape == bits.shape else 0
    yield t.negative_control(
        "bytes that one unit in the last place of an input moves", changed, ">=", 1, "bits follow the input"
    )


def _next(values: Array) -> Array:
    return values + 1 if values.dtype.kind in "iu" else np.nextafter(values, values.dtype.type(np.inf))
