"""Does a step train only the adapters, and is the reference pass the base model?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.op import ROLLOUT
from gates.families.scoring.op import COMPLETION_LOGPROBS
from gates.families.trainer.op import TRAIN_STEP
from gates.model import Bound, Case, Draw, Evidence, Probe, Recipe, Trial
from gates.registry import gate

DORA = {**runs.ADAPTER, "kind": "dora", "m_std": 0.1}
ADAPTER_LEAVES = ("lora_a", "lora_b", ".m")  # of mlx-lm's layers: A, B, and the magnitudes of DoRA
DENSE = ("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj")
EXPERTS = ("self_attn.q_proj", "mlp.switch_mlp.down_proj")
LINEAR = ("linear_attn.out_proj", "self_attn.o_proj")


def _make(
    rng: np.random.Generator,
    bits: int,
    beta: float,
    family: str = "",
    adapter: Mapping[str, Any] = runs.ADAPTER,
    parts: tuple[str, ...] = DENSE,
) -> dict[str, Any]:
    inputs = runs.case_inputs(rng, temperature=1.0, top_p=1.0, samples=4, count=2, bits=bits)
    if family:
        inputs["model"] = Recipe("model", {"family": family, "seed": 11, "bits": bits, "vocab": 272})
    rewards = np.array([1, 0, 0, 1, 0, 1, 1, 1], np.float32)
    return {**inputs, "beta": beta, "rewards": rewards, "adapter": dict(adapter), "parts": list(parts)}


PLAIN = Case("float32", partial(_make, bits=32, beta=0.0), proof=True, model="float32")
FOUR_BIT = Case("4-bit", partial(_make, bits=4, beta=0.04), quick=True, model="4-bit")
FAMILIES = (
    Case("llama", partial(_make, bits=32, beta=0.04, family="llama"), model="llama"),
    Case("experts", partial(_make, bits=32, beta=0.04, family="qwen3_moe", parts=EXPERTS), proof=True, model="experts"),
    Case(
        "tied-embeddings",
        partial(
            _make,
            bits=32,
            beta=0.04,
            family="gemma3_text",
            adapter={**runs.ADAPTER, "embeddings": True},
            parts=(*DENSE, "embed_tokens"),
        ),
        proof=True,
        model="tied",
    ),
    Case(
        "linear-attention",
        partial(_make, bits=32, beta=0.04, family="qwen3_5", parts=(*LINEAR, "mlp.down_proj")),
        proof=True,
        model="linear-attention",
    ),
    Case(
        "4-bit-hybrid-experts",
        partial(_make, bits=4, beta=0.04, family="qwen3_next", parts=(*LINEAR, "mlp.switch_mlp.down_proj")),
        model="4-bit-hybrid-experts",
    ),
    Case("dora", partial(_make, bits=32, beta=0.04, adapter=DORA), proof=True),
    Case(
        "4-bit-dora-linear-attention",
        partial(_make, bits=4, beta=0.04, family="qwen3_5", adapter=DORA, parts=(*LINEAR, "mlp.down_proj")),
        model="4-bit-dora-linear-attention",
    ),
)


def _batch(t: Trial) -> dict[str, Any]:
    run = runs.rollout(t, "naive", record_logits=False)  # the only path of every family
    return {**runs.scoring_batch(t, run), "temperature": 1.0}


def _rewards_differ(t: Draw) -> Iterator[Evidence]:
    spread = float(np.ptp(t.inputs["rewards"].reshape(2, 4), axis=1).min())
    yield t.precondition("smallest spread of rewards in a group", spread, ">", 0)


@gate(
    "trainer.only-adapters-train",
    level="law",
    name="train_step",
    question="Does one optimizer step change the adapters, all of them, and leave every bit of the base?",
    why="A base that moves is not QLoRA; adapters that stay are a forward pass outside value_and_grad, or were never found.",
    ops=(ROLLOUT, TRAIN_STEP),
    cases=(PLAIN, Case("float32-kl", partial(_make, bits=32, beta=0.04), model="float32"), FOUR_BIT, *FAMILIES),
    bounds={
        "parameters changed that are no adapter": Bound("exact", "only adapters train", 0),
        "digests of the base that differ": Bound("exact", "the base is frozen", 0),
        "trainable parameters that are no adapter": Bound("exact", "only adapters train", 0),
        "adapter parameters that stay as they were": Bound("exact", "each has a gradient where B is not 0", 0),
        "kinds of projection without an adapter": Bound("exact", "targets are found in every kind of layer", 0),
        "DoRA adapters without magnitudes that train": Bound("exact", "DoRA is A, B and magnitudes", 0),
    },
    requires=_rewards_differ,
)
def only_adapters_train(t: Trial) -> Iterator[Evidence]:
    """Take one step on rewards that differ within each group, and compare digests and names."""
    step = t.got(
        TRAIN_STEP,
        **_batch(t),
        adapter=t.inputs["adapter"],
        rewards=t.inputs["rewards"],
        group_size=4,
        learning_rate=1e-2,
        epsilon_low=0.2,
        epsilon_high=0.2,
        beta=t.inputs["beta"],
    )
    changed, trainable = list(step["changed"]), list(step["trainable"])
    others = [name for name in changed if not name.endswith(ADAPTER_LEAVES)]
    yield t.number("parameters changed that are no adapter", len(others), "<=", where=", ".join(others[:3]))
    not_adapters = [name for name in trainable if not name.endswith(ADAPTER_LEAVES)]
    yield t.number(
        "trainable parameters that are no adapter", len(not_adapters), "<=", where=", ".join(not_adapters[:3])
    )
    still = sorted({name for name in trainable if name.endswith(ADAPTER_LEAVES)} - set(changed))
    yield t.number("adapter parameters that stay as they were", len(still), "<=", where=", ".join(still[:3]))
    yield from _whole(t, trainable)
    differs = int(step["base_before"] != step["base_after"])
    yield t.number("digests of the base that differ", differs, "<=", where=step["base_after"][:12])
    yield t.negative_control(
        "largest change of an adapter", step["adapter_change"], ">", 1e-4, "a step must train something"
    )


def _whole(t: Trial, trainable: list[str]) -> Iterator[Evidence]:
    """Compare the trainable names with the projections of the case's tiny model; a model of `--model` has others."""
    own = {name.rpartition(".")[0] for name in trainable if name.endswith("lora_a")}
    if "path" not in t.inputs["model"].spec:
        lost = [part for part in t.inputs["parts"] if not any(name.endswith(part) for name in own)]
        yield t.number("kinds of projection without an adapter", len(lost), "<=", where=", ".join(lost))
    if t.inputs["adapter"].get("kind") == "dora":
        bare = sorted(name for name in own if f"{name}.m" not in trainable)
        yield t.number("DoRA adapters without magnitudes that train", len(bare), "<=", where=", ".join(bare[:3]))


@gate(
    "trainer.adapters-off-is-base",
    level="law",
    name="completion_logprobs[reference]",
    question="Are reference log-probs, taken with non-zero adapters switched off, bit for bit those of the base model?",
    why="A reference pass with the adapters on makes the KL zero for ever: nothing holds the policy back.",
    ops=(ROLLOUT, COMPLETION_LOGPROBS),
    cases=(PLAIN, FOUR_BIT, *FAMILIES),
    bounds={
        "log-probs that differ from the base model's": Bound("exact", "switched off, an adapter computes nothing", 0)
    },
    probes=(Probe("completion_logprobs", ("logprobs",), lambda inputs: not inputs["adapters_on"]),),
)
def adapters_off_is_base(t: Trial) -> Iterator[Evidence]:
    """Score the same tokens with the base, with adapters switched off, and with adapters on."""
    batch, adapter = _batch(t), t.inputs["adapter"]
    base = t.got(COMPLETION_LOGPROBS, **batch, adapter=None, adapters_on=True)["logprobs"]
    yield t.precondition("scored tokens", int(np.sum(batch["lengths"])), ">=", 16)
    off = t.got(COMPLETION_LOGPROBS, **batch, adapter=adapter, adapters_on=False)["logprobs"]
    yield t.number("log-probs that differ from the base model's", int(np.sum(off != base)), "<=")
    on = t.got(COMPLETION_LOGPROBS, **batch, adapter=adapter, adapters_on=True)["logprobs"]
    shift = float(np.abs(on - base).max())
    yield t.negative_control(
        "largest |Δlp| with adapters on", shift, ">=", 0.05, "adapters that are zero prove nothing"
    )


def _long(rng: np.random.Generator, family: str, bits: int) -> dict[str, Any]:
    inputs = _make(rng, bits, beta=0.0, family=family)
    inputs["model"] = Recipe("model", {**inputs["model"].spec, "layers": 6})
    rows = {"prompt_tokens": rng.integers(3, 272, (4, 8)), "tokens": rng.integers(3, 272, (4, 96))}
    batch = {name: ids.astype(np.int32) for name, ids in rows.items()}
    return {
        **inputs,
        **batch,
        "lengths": np.array([96, 80, 96, 60], np.int64),
        "rewards": np.array([1, 0, 0, 1.0], np.float32),
    }


@gate(
    "trainer.checkpointing.same-step",
    level="law",
    name="train_step[checkpointing]",
    question="Does a step whose blocks are computed again in the backward pass have the loss and the gradient of one that kept them?",
    why="What a checkpoint captures instead of taking as an input gets no gradient: the loss falls more slowly, and nobody knows.",
    ops=(TRAIN_STEP,),
    cases=(
        Case("qwen3", partial(_long, family="qwen3", bits=32), quick=True, model="qwen3"),
        Case("gemma3_text", partial(_long, family="gemma3_text", bits=32), model="gemma3_text"),
        Case("qwen3_moe-4-bit", partial(_long, family="qwen3_moe", bits=4), model="qwen3_moe-4-bit"),
        Case("qwen3_5", partial(_long, family="qwen3_5", bits=32), proof=True, model="qwen3_5"),
    ),
    bounds={
        "relative difference of the gradients' norms": Bound(
            "derived", "the same operations in another order at most: 100 roundings of float32", 100 * 2.0**-23
        ),
        "adapter parameters that change in one step only": Bound("exact", "the same parameters have a gradient", 0),
    },
    probes=(Probe("train_step", ("gradient_norm",), lambda inputs: bool(inputs.get("checkpointing"))),),
)
def checkpointing_same_step(t: Trial) -> Iterator[Evidence]:
    """Take the same step with and without checkpointing; compare gradients, changed parameters and peak memory."""
    names = ("model", "tokens", "lengths", "adapter", "rewards")
    inputs = {name: t.inputs[name] for name in names}
    inputs |= {
        "prompt_tokens": list(t.inputs["prompt_tokens"]),
        "temperature": 1.0,
        "group_size": 2,
        "learning_rate": 1e-2,
    }
    inputs |= {"epsilon_low": 0.2, "epsilon_high": 0.2, "beta": 0.0}
    kept, again = (t.got(TRAIN_STEP, **inputs, checkpointing=on) for on in (False, True))
    yield t.precondition("norm of the gradient", kept["gradient_norm"], ">", 1e-3)
    difference = abs(again["gradient_norm"] - kept["gradient_norm"]) / kept["gradient_norm"]
    yield t.number("relative difference of the gradients' norms", difference, "<=")
    changed = sorted(set(kept["changed"]) ^ set(again["changed"]))
    yield t.number("adapter parameters that change in one step only", len(changed), "<=", where=", ".join(changed[:3]))
    saved = 1 - again["peak_bytes"] / kept["peak_bytes"]
    yield t.negative_control(
        "share of the peak of memory that it saves", saved, ">=", 0.25, "blocks that are kept were not checkpointed"
    )
