"""The forward formula of the policy losses, written once over an arithmetic.

A loss is a term of each token (the bounded ratio times the advantage) plus β times a KL, averaged by an aggregation. Its
gradient is derived from it, so that a mistake shows in both, as with autograd. The table of algorithms maps names to
choices. Source: docs/definitions.md, "Policy losses".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, where
from gates.families.counts import Counted
from gates.families.loss import edits, inputs
from gates.families.loss.step import Step
from gates.families.loss.terms import penalty, surrogate
from gates.families.program import Choices, Data, Edit, Inputs, Program, Sample
from gates_reference.algorithms import Algorithm, composed

CONSTANTS = (  # a call may lack them
    "group_size",
    "micro_batches",
    "max_length",
    "tokens_in_step",
    "old",
    "reference",
    "row_mask",
)


def row_of(call: Mapping[str, Any]) -> Algorithm:
    """Return the row of the table that a call of `policy_loss` names, with its own choices on axes.

    Raises:
        ValueError: a choice is unknown, or the combination is invalid.
    """
    return composed(
        call["algorithm"],
        ratio_level=call.get("ratio_level"),
        bound=call.get("bound"),
        aggregation=call.get("aggregation"),
    )


def asked(call: Inputs) -> Choices:
    """Return the choices that a call of `policy_loss` asks for."""
    row, clipped = row_of(call), call.get("epsilon_low") is not None
    bound = "clip" if row.bound == "none" and clipped else row.bound
    beta = call["beta"]
    return {
        "mask": "given",
        "row_mask": "given",
        "log_ratio": "given" if call.get("old") is not None else "on-policy",
        "clamp of": "nothing",
        "clamp": (None, None),
        "level": row.ratio_level,
        "bound": "none" if bound == "clip" and not clipped else bound,
        "pick": "min",
        "low": call.get("epsilon_low"),
        "high": call.get("epsilon_high"),
        "mask_low": call.get("epsilon_low"),
        "delta": call.get("delta"),
        "cap": call.get("cispo_bound"),
        "tau": (call.get("sapo_temperature_positive"), call.get("sapo_temperature_negative")),
        "k": (call.get("vespo_k_positive"), call.get("vespo_k_negative")),
        "lambda": (call.get("vespo_lambda_positive"), call.get("vespo_lambda_negative")),
        "advantages": "given",
        "weights": "given" if call.get("weights") is not None else "none",
        "mean of": "mask",
        "beta": beta,
        "estimator": call.get("kl_estimator") if beta else None,
        "kl": "given",
        "kl_ratio": call.get("kl_ratio") if beta else None,
        "kl_clamp": call.get("kl_clamp") if beta else None,
        "kl clamped": "both",
        "d_clamp": None,
        "kl_mean": call.get("kl_aggregation") or "same",
        "mean": edits.DENOMINATORS[call["dapo_denominator"]] if row.aggregation == "token-mean" else row.aggregation,
        "count_eps": call.get("count_eps") or 0.0,
        "level_eps": 0.0,
        "numerator": "tokens",
        "rows": "as averaged",
        "sign": 1.0,
        "given": frozenset(name for name in CONSTANTS if call.get(name) is not None),
    }


OF_KL = frozenset(
    ("estimator", "kl_ratio", "kl_clamp", "kl clamped", "d_clamp", "kl_mean")
)  # choices that only the KL reads
OF_SURROGATE = frozenset(  # choices that only the policy term reads
    (
        "level",
        "bound",
        "pick",
        "low",
        "high",
        "mask_low",
        "delta",
        "cap",
        "tau",
        "k",
        "lambda",
        "log_ratio",
        "numerator",
        "sign",
    )
)
REWARDED = "in the advantages"  # the KL as a part of the policy term


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss."""
    apart = OF_KL if chosen["kl"] == REWARDED else OF_KL | {"beta", "kl"}
    step = cache(lambda: Step(data, chosen, variable))
    loss = data.part(_key(chosen, apart), lambda: _policy_term(step()))
    if not chosen["beta"] or chosen["kl"] == REWARDED:
        return {"loss": loss}
    return {"loss": loss + data.part(_key(chosen, OF_SURROGATE), lambda: penalty(step()))}


def _key(chosen: Choices, without: frozenset[str]) -> tuple[Any, ...]:
    return without, *(value for name, value in chosen.items() if name not in without)


def _policy_term(step: Step) -> Value:
    """Return the mean of the surrogate, with its sign."""
    term, chosen = surrogate(step), step.chosen
    if chosen["numerator"] != "all":
        counts = step.counts
        if chosen["numerator"] == "empty rows":  # once each
            counts = counts | (~counts.any(axis=1, keepdims=True) & (np.arange(counts.shape[1]) == 0))
        term = where(counts, term, 0.0)
    return step.mean(term) * chosen["sign"]


def fitted(chosen: Choices, samples: Sequence[Sample]) -> Iterator[Edit]:
    """Yield the edits that add a constant to the counts of tokens, by which losses and the log-ratios of rows are averaged."""
    names: dict[str, tuple[str, ...]] = {"the count of tokens": ("count_eps",)}
    if chosen["level"] in {"seq_mean", "seq_mean_token"}:
        names |= {
            "every count of tokens, the ratio's too": ("count_eps", "level_eps"),
            "the count of tokens in the row's ratio": ("level_eps",),
        }
    yield from Counted(compute, edits.edits, "policy", names).fitted(chosen, samples)


PROGRAM = Program(
    op="policy_loss",
    asked=asked,
    compute=compute,
    edits=edits.edits,
    inputs=inputs.designed,
    outputs=("loss", "gradient"),
    variable="policy",
    places=inputs.places,
    fitted=fitted,
    rare=edits.clamps,
    presets=edits.presets,
    examples=inputs.examples,
    declares=edits.DECLARED,
)
PROGRAMS = (PROGRAM,)
