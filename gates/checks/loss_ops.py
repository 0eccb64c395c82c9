"""Ops that only a trainer has: a step's loss in parts, and a loss whose KL is a part of the reward."""

from __future__ import annotations

from dataclasses import replace

from gates.checks.ops import POLICY_LOSS
from gates.model import Op, Output

POLICY_LOSS_IN_PARTS = replace(
    POLICY_LOSS,
    name="policy_loss_in_parts",
    inputs={**POLICY_LOSS.inputs, "parts": "rows of each micro-batch, in order; they add up to B"},
    source="gradient accumulation over micro-batches, with the denominators of the whole step",
    formula="Σ over parts of each part's share of the step's loss, and the gradient of each part in its rows",
)
REWARDED_LOSS = Op(
    name="rewarded_loss",
    outputs={
        "loss": Output(kind="scalar"),
        "gradient": Output(like="policy"),
        "advantages": Output(kind="f", ndim=1),
    },
    inputs={
        "policy": "(B, T) float32 log-probs of the current policy",
        "old": "behaviour log-probs of the same shape",
        "reference": "log-probs of the reference policy of the same shape",
        "mask": "(B, T) bool, true on completion tokens",
        "rewards": "(B,) float64, prompt-major",
        "group_size": "G, divides B",
        "beta": "weight of the KL in the reward, above 0",
    },
    source="RLOO, arXiv 2402.14740, eqs. 1 and 6",
    formula="A_i = leave-one-out of R_i − β·Σ_t(old − reference); loss = −mean_i exp(Σ_t D)·A_i, A a constant",
)
