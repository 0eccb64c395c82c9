"""Does a loss's gradient flow through the policy alone, and does the prompt have no influence?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.loss import calls, choosing, laws
from gates.families.loss import cases as loss_cases
from gates.families.loss.gates import gradient
from gates.families.loss.op import LOSS_CONSTANTS, LOSS_FROM_LOGITS, POLICY_LOSS
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.algorithms import ALGORITHMS
from gates_reference.oracle import logprobs


def _on_policy(rng: np.random.Generator, algorithm: str, beta: float) -> Mapping[str, Any]:
    """Return calls with `old` None and with the policy's own values as a constant; broken, with another policy's."""
    changes = {"beta": beta} if beta else {}
    by_token = calls.batch_for(algorithm).get("by_token", False)
    call = calls.make(rng, algorithm, {"spread": 0.1, "by_token": by_token}, changes)
    left, right = {**call, "old": None}, {**call, "old": call["policy"].copy()}
    return {"left": left, "right": right, "broken": {"right": {"old": call["old"]}}}


def _cases() -> Iterator[Case]:
    for algorithm, row in ALGORITHMS.items():
        for beta in (0.0, 0.3):
            if row.ratio_level == "none" or (beta and not row.kl_in_loss):
                continue
            name = f"{algorithm}-{'kl' if beta else 'plain'}"
            changes: dict[str, Any] = {"beta": beta} if beta else {}
            conventions = {**loss_cases.case(algorithm, name, **changes).conventions, "ratio": choosing.BOTH_RATIOS}
            on_policy = partial(_on_policy, algorithm=algorithm, beta=beta)
            quick = not beta and algorithm in loss_cases.LEVELS
            yield Case(name, on_policy, quick=quick, conventions=conventions)


@gate(
    "loss.old-is-a-constant",
    level="law",
    name="policy_loss[detach]",
    question="On-policy, is the gradient that of a constant `old` with the same numbers, alive and the same?",
    why="An `old` that keeps its graph cancels the policy in every ratio: the loss looks right and nothing is learned.",
    ops=(POLICY_LOSS,),
    cases=tuple(_cases()),
    bounds=laws.BOUNDS,
    requires=laws.preconditions,
    probes=(Probe("policy_loss", ("loss", "gradient"), lambda inputs: inputs["old"] is None),),
)
def old_is_a_constant(t: Trial) -> Iterator[Evidence]:
    """Compare a call without `old` with one given the policy's values; another policy's values must change it."""
    yield from laws.hold(t)


TOKEN = {"correction_level": "token", "correction_low": 0.5, "correction_high": 1.5}
ROW = {"correction_level": "seq_sum", "correction_low": 0.3, "correction_high": 2.0}
HELD: dict[str, dict[str, Any]] = {
    "grpo-tis": {"algorithm": "grpo", "correction": "tis", **TOKEN},
    "grpo-mis-sequence": {"algorithm": "grpo", "correction": "mis", **ROW},
    "dapo-kl-of-token": {"algorithm": "dapo", "correction": "tis", "kl_ratio": "token", **TOKEN},
    "gspo-kl-of-sequence": {"algorithm": "gspo", "correction": "tis", "kl_ratio": "sequence", **ROW},
    "cispo": {"algorithm": "cispo", "correction": "tis", **TOKEN},
    "sapo-k2": {"algorithm": "sapo", "kl_estimator": "k2"},
    "gmpo": {"algorithm": "gmpo"},
    "luspo": {"algorithm": "luspo", "correction": "tis", "kl_ratio": "sequence", **ROW},
    "on-policy-tis": {"algorithm": "grpo", "correction": "tis", "on_policy": True, **TOKEN},
    "on-policy-mis-sequence": {"algorithm": "dapo", "correction": "mis", "on_policy": True, **ROW},
}


CLIP = {"epsilon_low": 0.2, "epsilon_high": 0.28, "dapo_denominator": "global"}  # no bound acts on-policy
WITHOUT: dict[str, Any] = {  # defaults of a case
    "beta": 0.3,
    "kl_estimator": "k3",
    "kl_ratio": "none",
    "correction": None,
    "correction_level": None,
    "correction_low": None,
    "correction_high": None,
}


def _held(rng: np.random.Generator, name: str) -> dict[str, Any]:
    changes = {**WITHOUT, **HELD[name]}
    on_policy = changes.pop("on_policy", False)
    inputs = arrays.loss_inputs(rng, rows=12, spread=0.02 if changes["algorithm"] == "gspo" else 0.3)
    near = inputs["policy"] if on_policy else inputs["old"]
    sampling = (near + rng.normal(0.0, 0.12, near.shape)).astype(np.float32)
    return {**inputs, **({"old": None} if on_policy else {}), "sampling": sampling, **changes}


def _conventions(held: dict[str, Any]) -> dict[str, Any]:
    ratio = choosing.BOTH_RATIOS if held.get("on_policy") else "off-policy"
    return {"algorithm": held["algorithm"], "dtype": "float32", "ratio": ratio}


@gate(
    "loss.constants-get-no-gradient",
    level="law",
    name="policy_loss[constants]",
    question="Do old, reference and sampling log-probs get no gradient, and off-policy weights none through the policy?",
    why="A reference or a weight that keeps its graph pulls on the policy by itself; the loss's value is right all the while.",
    ops=(LOSS_CONSTANTS,),
    cases=tuple(
        Case(name, partial(_held, name=name), quick=True, conventions=_conventions(HELD[name])) for name in HELD
    ),
    bounds={
        "elements of old with a gradient": Bound("exact", "the old policy is a constant", 0),
        "elements of the reference with a gradient": Bound("exact", "the reference is a constant", 0),
        "elements of the sampler's log-probs with a gradient": Bound("exact", "weights are constants", 0),
        "on-policy gradient in 2u·S": Bound(
            "derived",
            "one number by definition, and each errs by k·2u·S, k = 4; S the largest element",
            8.0,
            "precision",
        ),
    },
)
def constants_get_no_gradient(t: Trial) -> Iterator[Evidence]:
    """Differentiate by every input; without `old`, compare with `old` given as the policy's values."""
    x = dict(t.inputs)
    got = t.got(LOSS_CONSTANTS, **x)
    gradient = np.asarray(got["gradient"])
    yield t.precondition("largest |∂loss/∂policy|", float(np.abs(gradient).max()), ">", 1e-3)
    for name, label in (
        ("old", "old"),
        ("reference", "the reference"),
        ("sampling", "the sampler's log-probs"),
    ):
        slope = np.asarray(got[f"{name}_gradient"])
        yield t.number(f"elements of {label} with a gradient", int(np.sum(slope != 0)), "<=")  # NaN is not 0
    shifted = {**x, "reference": (x["reference"] + np.float32(0.25)).astype(np.float32)}
    moved = float(np.abs(np.asarray(t.got(LOSS_CONSTANTS, **shifted)["gradient"]) - gradient).max())
    yield t.negative_control(
        "change of the gradient by another reference", moved, ">", 1e-4, "a reference that is not read has none"
    )
    if x["old"] is None:
        constant = {**x, "old": x["policy"].copy()}
        want = np.asarray(t.got(LOSS_CONSTANTS, **constant)["gradient"])
        scale = 2 * UNIT["float32"] * float(np.abs(want).max())
        limits = [t.textbook(LOSS_CONSTANTS, **CLIP, **side)["gradient"] for side in (x, constant)]
        yield from t.agrees("on-policy gradient in 2u·S", gradient, want, limits[0] + limits[1], scale=scale)


def _poisoned(rng: np.random.Generator, temperature: float, beta: float) -> dict[str, Any]:
    return gradient._make(rng, temperature, beta)  # the inputs of loss.prompt-gets-no-gradient


def _silent(x: Mapping[str, Any]) -> Array:
    """Return the mask of positions whose logits score no completion token."""
    silent = np.ones(x["ids"].shape, bool)
    silent[:, :-1] = ~logprobs.completion_slots(x["prompt_lengths"], x["lengths"], x["ids"].shape[1])
    return silent


def _some_silent(t: Draw) -> Iterator[Evidence]:
    yield t.precondition("positions that score no completion token", int(_silent(t.inputs).sum()), ">=", 8)


@gate(
    "loss.prompt-does-not-matter",
    level="law",
    name="policy_loss[prompt]",
    question="Do loss and gradient keep every bit when the logits at prompt positions and past the end are others?",
    why="A prompt that enters the loss rewards a model for what the user wrote, and no loss curve says so.",
    ops=(LOSS_FROM_LOGITS,),
    cases=(
        Case("plain", partial(_poisoned, temperature=1.0, beta=0.0), quick=True, conventions={"algorithm": "grpo"}),
        Case(
            "tempered-kl", partial(_poisoned, temperature=0.7, beta=0.04), quick=True, conventions={"algorithm": "grpo"}
        ),
    ),
    bounds={
        "elements of loss and gradient that change": Bound("exact", "no such logit is an input of the loss", 0.0),
    },
    requires=_some_silent,
)
def prompt_does_not_matter(t: Trial) -> Iterator[Evidence]:
    """Replace logits that score no completion token; as the control, replace one that does."""
    x = dict(t.inputs)
    silent = _silent(x)
    other = np.where(silent[..., None], np.float32(3.0) - x["logits"][:, :, ::-1], x["logits"]).astype(np.float32)
    clean, moved = t.got(LOSS_FROM_LOGITS, **x), t.got(LOSS_FROM_LOGITS, **{**x, "logits": other})
    changed = int(not laws.same(clean["loss"], moved["loss"])) + int(
        np.sum(~laws.same(clean["gradient"], moved["gradient"]))
    )
    where = f"loss {float(moved['loss']):.6g} instead of {float(clean['loss']):.6g}"
    yield t.number("elements of loss and gradient that change", changed, "<=", where=where)
    rows, last = (
        np.arange(len(x["ids"])),
        np.asarray(x["prompt_lengths"]) - 1,
    )  # the positions that score the first tokens
    pulled = np.abs(np.asarray(clean["gradient"]))[rows, last].max(axis=-1)
    row = int(np.argmax(pulled))  # not clipped
    counted = x["logits"].copy()
    counted[row, last[row]] = counted[row, last[row], ::-1]
    control = t.got(LOSS_FROM_LOGITS, **{**x, "logits": counted})
    step = float(np.abs(control["gradient"] - clean["gradient"]).max()) / float(UNIT["float32"])
    yield t.negative_control(
        "change of the gradient by the last prompt position in u", step, ">=", 1e3, "it scores a token"
    )
