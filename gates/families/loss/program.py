"""The forward formula of the policy losses, written once over an arithmetic.

A loss is a term of each token (the bounded ratio times the advantage) plus β times a KL, averaged by an aggregation. Its
gradient is the derivative of what is computed: a mistake in one is in the other, as with autograd. The table of algorithms says
which choices a name stands for. Source: docs/definitions.md, "Policy losses".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, where
from gates.families.loss import edits, inputs
from gates.families.loss.step import Step
from gates.families.loss.terms import penalty, surrogate
from gates.families.program import Choices, Data, Inputs, Program
from reference.algorithms import Algorithm, composed

CONSTANTS = (  # a call may lack them
    "group_size",
    "micro_batches",
    "max_length",
    "tokens_in_step",
    "old",
    "reference",
    "row_mask",
)


def row_of(given: Mapping[str, Any]) -> Algorithm:
    """Return the row of the table that the keywords of `policy_loss` name, with the choices that they make beside the name.

    Raises:
        ValueError: a word is unknown, or the choices do not go together.
    """
    return composed(
        given["algorithm"],
        ratio_level=given.get("ratio_level"),
        bound=given.get("bound"),
        aggregation=given.get("aggregation"),
    )


def asked(given: Inputs) -> Choices:
    """Return the choices that the keywords of `policy_loss` ask for."""
    row, clipped = row_of(given), given.get("epsilon_low") is not None
    bound = "clip" if row.bound == "none" and clipped else row.bound
    beta = given["beta"]
    return {
        "mask": "given",
        "row_mask": "given",
        "log_ratio": "given" if given.get("old") is not None else "on-policy",
        "level": row.ratio_level,
        "bound": "none" if bound == "clip" and not clipped else bound,
        "pick": "min",
        "low": given.get("epsilon_low"),
        "high": given.get("epsilon_high"),
        "delta": given.get("delta"),
        "cap": given.get("cispo_bound"),
        "tau": (given.get("sapo_temperature_positive"), given.get("sapo_temperature_negative")),
        "k": (given.get("vespo_k_positive"), given.get("vespo_k_negative")),
        "lambda": (given.get("vespo_lambda_positive"), given.get("vespo_lambda_negative")),
        "advantages": "given",
        "weights": "given" if given.get("weights") is not None else "none",
        "beta": beta,
        "estimator": given.get("kl_estimator") if beta else None,
        "kl": "given",
        "kl_ratio": given.get("kl_ratio") if beta else None,
        "kl_clamp": given.get("kl_clamp") if beta else None,
        "kl_mean": "same",
        "mean": edits.DENOMINATORS[given["dapo_denominator"]] if row.aggregation == "token-mean" else row.aggregation,
        "numerator": "tokens",
        "sign": 1.0,
        "given": frozenset(name for name in CONSTANTS if given.get(name) is not None),
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss."""
    step = Step(data, chosen, variable)
    term = surrogate(step)
    if chosen["numerator"] != "all":
        counts = step.counts
        if chosen["numerator"] == "empty rows":  # once each
            counts = counts | (~counts.any(axis=1, keepdims=True) & (np.arange(counts.shape[1]) == 0))
        term = where(counts, term, 0.0)
    loss = step.mean(term) * chosen["sign"]
    return {"loss": loss + penalty(step) if chosen["beta"] and chosen["kl"] != "in the advantages" else loss}


PROGRAM = Program(
    op="policy_loss",
    asked=asked,
    compute=compute,
    edits=edits.edits,
    inputs=inputs.designed,
    outputs=("loss", "gradient"),
    variable="policy",
    places=inputs.places,
    presets=edits.presets,
    examples=inputs.examples,
)
PROGRAMS = (PROGRAM,)
