"""Does a step train the adapters and nothing else, and is the reference pass really the base model?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.checks import runs
from gates.checks.ops import COMPLETION_LOGPROBS, ROLLOUT, TRAIN_STEP
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate

ADAPTER = {"rank": 4, "scale": 2.0, "seed": 3, "b_std": 0.1}


def _make(rng: np.random.Generator, bits: int, beta: float) -> dict[str, Any]:
    inputs = runs.case_inputs(rng, temperature=1.0, top_p=1.0, samples=4, count=2, bits=bits)
    return {**inputs, "beta": beta, "rewards": np.array([1, 0, 0, 1, 0, 1, 1, 1], np.float32)}


CASES = (
    Case("float32", partial(_make, bits=32, beta=0.0), quick=True),
    Case("float32-kl", partial(_make, bits=32, beta=0.04)),
    Case("4-bit", partial(_make, bits=4, beta=0.04), quick=True),
)


def _batch(t: Trial) -> dict[str, Any]:
    run = runs.rollout(t, "batched", record_logits=False)
    return {**runs.scoring_batch(t, run), "temperature": 1.0}


@gate(
    "trainer.only-adapters-train",
    name="train_step",
    question="Does one optimizer step change lora_a and lora_b, and leave every bit of the base?",
    why="A base that moves is not QLoRA; adapters that stay are a forward pass outside value_and_grad.",
    ops=(ROLLOUT, TRAIN_STEP),
    cases=CASES,
    bounds={
        "parameters changed that are no adapter": Bound("exact", "only lora_a and lora_b train", 0),
        "digests of the base that differ": Bound("exact", "the base is frozen", 0),
        "trainable parameters that are no adapter": Bound("exact", "only lora_a and lora_b train", 0),
    },
)
def only_adapters_train(t: Trial) -> Iterator[Evidence]:
    """Take one step on rewards that differ within each group, and compare digests and names."""
    rewards = t.inputs["rewards"]
    yield t.signal("smallest spread of rewards in a group", float(np.ptp(rewards.reshape(2, 4), axis=1).min()), ">", 0)
    step = t.got(
        TRAIN_STEP,
        **_batch(t),
        adapter=ADAPTER,
        rewards=rewards,
        group_size=4,
        learning_rate=1e-2,
        epsilon_low=0.2,
        epsilon_high=0.2,
        beta=t.inputs["beta"],
    )
    others = [name for name in step["changed"] if not name.endswith(("lora_a", "lora_b"))]
    yield t.number("parameters changed that are no adapter", len(others), "<=", where=", ".join(others[:3]))
    strangers = [name for name in step["trainable"] if not name.endswith(("lora_a", "lora_b"))]
    yield t.number("trainable parameters that are no adapter", len(strangers), "<=", where=", ".join(strangers[:3]))
    differs = int(step["base_before"] != step["base_after"])
    yield t.number("digests of the base that differ", differs, "<=", where=step["base_after"][:12])
    yield t.control("largest change of an adapter", step["adapter_change"], ">", 1e-4, "a step must train something")


@gate(
    "trainer.adapters-off-is-base",
    name="completion_logprobs[reference]",
    question="Are reference log-probs, taken with non-zero adapters switched off, bit for bit those of the base model?",
    why="A reference pass with the adapters on makes the KL zero for ever: nothing holds the policy back.",
    ops=(ROLLOUT, COMPLETION_LOGPROBS),
    cases=(CASES[0], CASES[2]),
    bounds={
        "log-probs that differ from the base model's": Bound("exact", "switched off, an adapter computes nothing", 0)
    },
    probes=(Probe("completion_logprobs", ("logprobs",), lambda inputs: not inputs["adapters_on"]),),
)
def adapters_off_is_base(t: Trial) -> Iterator[Evidence]:
    """Score the same tokens with the base, with adapters switched off, and with adapters on."""
    batch = _batch(t)
    base = t.got(COMPLETION_LOGPROBS, **batch, adapter=None, adapters_on=True)["logprobs"]
    yield t.signal("scored tokens", int(np.sum(batch["lengths"])), ">=", 16)
    off = t.got(COMPLETION_LOGPROBS, **batch, adapter=ADAPTER, adapters_on=False)["logprobs"]
    yield t.number("log-probs that differ from the base model's", int(np.sum(off != base)), "<=")
    on = t.got(COMPLETION_LOGPROBS, **batch, adapter=ADAPTER, adapters_on=True)["logprobs"]
    shift = float(np.abs(on - base).max())
    yield t.control("largest |Δlp| with adapters on", shift, ">=", 0.05, "adapters that are zero prove nothing")
