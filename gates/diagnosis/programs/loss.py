"""The forward definition of the policy losses, and what people write instead.

A loss is a term of each token, the log-ratio's surrogate, plus β times a KL, averaged by an aggregation. Its gradient is the
derivative of what is computed: a mistake in one is in the other, as with autograd. Source: docs/definitions.md, "Policy losses".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, where
from gates.diagnosis.program import Choices, Data, Inputs, Program
from gates.diagnosis.programs import loss_edits, loss_inputs
from gates.diagnosis.programs.loss_step import Step
from gates.diagnosis.programs.loss_terms import penalty, surrogate

CONSTANTS = (
    "group_size",
    "micro_batches",
    "max_length",
    "tokens_in_step",
    "old",
    "reference",
)  # that a call may leave out


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `policy_loss` ask for."""
    name = inputs["algorithm"]
    clipped = inputs.get("epsilon_low") is not None
    level = {"gspo": "row mean", "luspo": "row mean", "gspo-token": "row mean, token slope", "rloo": "row product"}
    surrogate = {"cispo": "cap", "sapo": "gate", "gmpo": "geometric"}
    return {
        "mask": "given",
        "row_mask": "given",
        "log_ratio": "given" if inputs.get("old") is not None else "on-policy",
        "level": level.get(name, "token"),
        "surrogate": surrogate.get(name, "clip" if clipped else "product"),
        "pick": "min",
        "low": inputs.get("epsilon_low"),
        "high": inputs.get("epsilon_high"),
        "delta": inputs.get("delta"),
        "cap": inputs.get("cispo_bound"),
        "tau": (inputs.get("sapo_temperature_positive"), inputs.get("sapo_temperature_negative")),
        "advantages": "given",
        "weights": "given" if inputs.get("weights") is not None else "none",
        "beta": inputs["beta"],
        "estimator": inputs.get("kl_estimator") if inputs["beta"] else None,
        "kl": "given",
        "kl_ratio": inputs.get("kl_ratio") if inputs["beta"] else None,
        "kl_clamp": inputs.get("kl_clamp") if inputs["beta"] else None,
        "kl_mean": "same",
        "mean": _mean_asked(inputs),
        "numerator": "tokens",
        "sign": 1.0,
        "given": frozenset(name for name in CONSTANTS if inputs.get(name) is not None),
    }


def _mean_asked(inputs: Inputs) -> str:
    name = inputs["algorithm"]
    if name in {"dapo", "cispo"}:
        return {"global": "tokens", "group": "prompt tokens", "trl": "tokens of the step"}[inputs["dapo_denominator"]]
    return {"bnpo-trl": "micro-batch tokens", "dr_grpo": "constant", "luspo": "row sums"}.get(name, "row means")


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss."""
    step = Step(data, chosen, variable)
    term = surrogate(step)
    if chosen["numerator"] != "all":
        counts = step.counts
        if chosen["numerator"] == "empty rows":  # once each
            counts = counts | (~counts.any(axis=1, keepdims=True) & (np.arange(counts.shape[1]) == 0))
        term = where(counts, term, 0.0)
    result = step.mean(term, chosen["mean"]) * chosen["sign"]
    return {"loss": result + penalty(step) if chosen["beta"] and chosen["kl"] != "in the advantages" else result}


PROGRAM = Program(
    op="policy_loss",
    asked=asked,
    compute=compute,
    edits=loss_edits.edits,
    inputs=loss_inputs.designed,
    outputs=("loss", "gradient"),
    variable="policy",
    places=loss_inputs.places,
    presets=loss_edits.presets,
    examples=loss_inputs.examples,
)
PROGRAMS = (PROGRAM,)
