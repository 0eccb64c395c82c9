"""Ops that score completions by a full forward pass."""

from __future__ import annotations

from gates.families.rollout.op import BATCH_INPUTS, MODEL_INPUTS
from gates.model import Op, Output

COMPLETION_LOGPROBS = Op(
    name="completion_logprobs",
    outputs={"logprobs": Output(kind="f", ndim=2)},
    inputs={
        **MODEL_INPUTS,
        **BATCH_INPUTS,
        "temperature": "of the scoring",
        "adapters_on": "false: the reference pass, adapters attached and switched off",
    },
    source="full forward; lp_t = x[id]/τ − logsumexp(x/τ)",
)
COMPLETION_ENTROPIES = Op(
    name="completion_entropies",
    outputs={"entropies": Output(kind="f", ndim=2)},
    inputs={**MODEL_INPUTS, **BATCH_INPUTS, "temperature": "of the scoring"},
    source="full forward; H_t = −Σ p log p of softmax(x/τ)",
)
